package leader

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// A Holder is who leads a group, as all can see it.
type Holder struct {
	Identity string    `json:"identity"` // see WithIdentity
	Term     uint64    `json:"term"`     // the term's fencing token
	Since    time.Time `json:"since"`    // about, by the leader's clock
}

// Leader returns who leads. Where this process does, it asks nobody. Otherwise it is who has the leadership on a quorum of
// nodes, which is asked: a leader that resigns is shown until its work has ended, and one that has died until its lease
// has. So this is for people to read, and excludes nobody. The error matches ErrNoLeader, or is core's.
func (e *Elector) Leader(ctx context.Context) (Holder, error) {
	if t, err := e.Term(); err == nil {
		return Holder{e.identity, t.FencingToken, t.Since.UTC()}, nil
	}
	e.mu.Lock()
	own := e.own
	e.mu.Unlock()
	state, err := e.locker.Inspect(ctx, e.key)
	switch h := state.Holder; {
	case err != nil:
		return Holder{}, fmt.Errorf("leader: %w", err)
	case h == nil || h.Token <= own: // nobody, or this process as it resigns
		return Holder{}, ErrNoLeader
	default:
		return Holder{h.Note, h.Token, h.Since.UTC()}, nil
	}
}

// RequestResign asks whoever leads to resign, as if it had called Resign itself: it finishes the work of its term first.
// RequestResign returns when the request is recorded, and the leader looks for such requests every few seconds. The errors
// are those of Leader.
func (e *Elector) RequestResign(ctx context.Context) error {
	if t := e.current(); t.leads() {
		t.shut()
		return nil
	}
	h, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	_, err = e.locker.OnceResult(ctx, e.request(h.Term), func(context.Context) ([]byte, error) { return []byte(e.identity), nil },
		core.Name(e.group+"/leader"), core.Retention(requestKept), core.MaxWait(requestWait), core.Detached(false))
	if err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	return nil
}

const (
	askedEvery  = 3 * time.Second  // a leader looks so often whether it is to resign
	requestKept = 30 * time.Minute // for a leader that reaches no nodes just then
	requestWait = 3 * time.Second  // for others that ask for the same
)

// request is the key under which it is recorded that a term is to end.
func (e *Elector) request(term uint64) string {
	return core.Key("cron-leader-resign", e.group, strconv.FormatUint(term, 10))
}

// heed has the leader resign when another process asks for that. What fails is repeated. One node that has the request
// is enough: nobody but who asks makes one.
func (e *Elector) heed(t *term) {
	for ; t.leads(); pause.For(t.notice, askedEvery) {
		state, _ := e.locker.Inspect(t.notice, e.request(t.FencingToken)) // an error comes again, or passes
		for _, node := range state.Nodes {
			if node.Record != nil && t.leads() {
				e.locker.Logger().Info("leader: another process asks this one to resign", "group", e.group, "by", string(node.Record.Result))
				t.shut()
			}
		}
	}
}
