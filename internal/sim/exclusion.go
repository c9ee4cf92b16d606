package sim

import (
	"context"
	"sync"
)

// An Exclusion is the oracle of mutual exclusion: at most one holder of a key at a time whose context has not ended.
type Exclusion struct {
	mu      sync.Mutex
	holders map[string]map[string]context.Context
}

// Enter tells that who holds key until ctx ends, or until leave is called. It reports whom that overlaps, as a violation.
func (e *Exclusion) Enter(t *Trial, ctx context.Context, key, who string) (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holders == nil {
		e.holders = map[string]map[string]context.Context{}
	}
	if e.holders[key] == nil {
		e.holders[key] = map[string]context.Context{}
	}
	for other, until := range e.holders[key] {
		switch {
		case until.Err() != nil:
			t.Count("overlap after the end")
		case ctx.Err() == nil:
			t.Violation("%s: %s and %s at once", key, other, who)
		}
	}
	e.holders[key][who] = ctx
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.holders[key], who)
	}
}
