package leader

import (
	"context"
	"fmt"
	"time"
)

// A Holder is the leader of a group, as every process can see it.
type Holder struct {
	Candidate string    `json:"candidate"` // see WithCandidate
	Term      uint64    `json:"term"`      // the fencing token of the term; 0 if the nodes do not agree on it
	Since     time.Time `json:"since"`     // about, by the leader's clock; zero if Term is 0
}

// Leader returns the leader of the group. If this process leads, Leader asks no node. Otherwise it returns the other process
// that holds the leadership on a quorum of nodes: a leader that resigns is shown until its work has ended, and a leader
// that has died until its lease has. The error matches ErrNoLeader or is core's.
func (e *Elector) Leader(ctx context.Context) (Holder, error) {
	if t, err := e.Term(); err == nil {
		return Holder{e.candidate, t.FencingToken, t.Since.UTC()}, nil
	}
	e.mu.Lock()
	own := e.lastToken
	e.mu.Unlock()
	state, err := e.locker.Inspect(ctx, e.key)
	switch h := state.Holder; {
	case err != nil:
		return Holder{}, fmt.Errorf("leader: %w", err)
	case h == nil || h.Token > 0 && h.Token <= own: // none, or a lease that this process has held
		return Holder{}, ErrNoLeader
	default:
		return Holder{h.Note, h.Token, h.Since.UTC()}, nil
	}
}
