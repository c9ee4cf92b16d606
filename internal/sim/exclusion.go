package sim

import (
	"context"
	"sync"
)

// An Exclusion is the oracle of mutual exclusion: at any time, at most one holder of a key has a context that has not
// ended.
type Exclusion struct {
	mu      sync.Mutex                            // guards holders
	holders map[string]map[string]context.Context // by key and name
}

// Enter records that a holder with that name has key until ctx ends, or until leave is called. It reports a
// violation if the key has another holder and neither context has ended.
func (e *Exclusion) Enter(t *Trial, ctx context.Context, key, name string) (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.holders == nil {
		e.holders = map[string]map[string]context.Context{}
	}
	if e.holders[key] == nil {
		e.holders[key] = map[string]context.Context{}
	}

	for other, otherCtx := range e.holders[key] {
		switch {
		case otherCtx.Err() != nil:
			// The other holder has not left yet, but it has lost the key.
			t.Count("overlap after the end")
		case ctx.Err() == nil:
			t.Violation("%s: %s and %s at once", key, other, name)
		}
	}

	e.holders[key][name] = ctx
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()

		delete(e.holders[key], name)
	}
}
