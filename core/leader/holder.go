package leader

import (
	"context"
	"fmt"
	"time"
)

// A Holder describes the leader of a group.
type Holder struct {
	Candidate string    `json:"candidate"` // see WithCandidate
	Term      uint64    `json:"term"`      // the fencing token of the term; 0 if the nodes do not agree on it
	Since     time.Time `json:"since"`     // approximate begin of the term, by the leader's clock; zero if Term is 0
}

// Leader returns the leader of the group. If this process leads, Leader sends no request. Otherwise it returns the
// other process that holds the leadership on a quorum of nodes. A leader that resigns is returned until its work has
// ended, and a leader that has died until its lease has ended. The error matches ErrNoLeader or is an error of core.
func (e *Elector) Leader(ctx context.Context) (Holder, error) {
	if t, err := e.Term(); err == nil {
		return Holder{e.candidate, t.FencingToken, t.Since.UTC()}, nil
	}

	e.mu.Lock()
	lastToken := e.lastToken
	e.mu.Unlock()

	state, err := e.locker.Inspect(ctx, e.key)
	switch h := state.Holder; {
	case err != nil:
		return Holder{}, fmt.Errorf("leader: %w", err)
	case h == nil || h.Token > 0 && h.Token <= lastToken:
		// There is no holder, or the lease is an earlier one of this process.
		return Holder{}, ErrNoLeader
	default:
		return Holder{h.Note, h.Token, h.Since.UTC()}, nil
	}
}
