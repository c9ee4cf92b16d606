package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/history"
)

// Record returns an observer that records in h the results that a process
// receives: attempts, grants, ends and losses of leases, completions, and keys
// that are done. Each process needs its own name. The caller must record events
// that no lock sees: writes to a resource ([history.History.Wrote]), and records
// whose retention is over ([history.History.Forget]).
//
// The instants are those at which the observer is called. It is called for a lost
// lease a little later than the holder's context ends, which does not show in a
// bubble. In real time, a lease that Close takes away may seem to last until after
// the next grant.
func Record(h *history.History, process string) core.Observer {
	r := &recorder{
		h:       h,
		process: process,
		holders: map[leaseID]string{},
		ends:    map[leaseID]leaseEnd{},
	}
	return core.Observer{Start: r.start}
}

type recorder struct {
	h       *history.History
	process string

	// mu guards the fields below, and keeps the events of one lease in order.
	mu       sync.Mutex
	attempts int
	holders  map[leaseID]string
	ends     map[leaseID]leaseEnd // of leases that ended before their acquisitions did
}

// leaseID identifies a lease.
type leaseID struct {
	key   string
	token uint64
}

type leaseEnd struct {
	at   time.Time
	lost bool
}

// start observes the start of an operation, and returns the function that observes its end.
func (r *recorder) start(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	id := leaseID{op.Key, op.Token}
	switch op.Kind {
	case core.OpAcquire:
		holder := r.addAttempt(op.Key)
		return ctx, func(out core.Outcome) {
			r.onAcquired(op.Key, holder, out)
		}

	case core.OpHold:
		return ctx, func(out core.Outcome) {
			r.onEnd(id, leaseEnd{time.Now(), errors.Is(out.Err, core.ErrLost)})
		}

	case core.OpComplete:
		return ctx, func(out core.Outcome) {
			r.onCompleted(id, out)
		}

	default: // neither a grant nor the end of a lease
		return ctx, nil
	}
}

// addAttempt records the start of an acquisition, and returns a name for it.
func (r *recorder) addAttempt(key string) (holder string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts++
	holder = fmt.Sprintf("%s, attempt %d", r.process, r.attempts)
	r.h.Attempt(key, holder, time.Now())
	return holder
}

// onAcquired records the result of an acquisition.
func (r *recorder) onAcquired(key, holder string, out core.Outcome) {
	if out.Err != nil {
		r.recordDone(key, out.Err)
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	id := leaseID{key, out.Token}
	r.h.Granted(key, holder, out.Token, time.Now())
	if e, ended := r.ends[id]; ended {
		delete(r.ends, id)
		r.recordEnd(id, holder, e)
	}
	r.holders[id] = holder
}

// onEnd records the end of a lease. If its acquisition has not been recorded yet, it keeps the end for onAcquired.
func (r *recorder) onEnd(id leaseID, e leaseEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if holder, ok := r.holders[id]; ok {
		r.recordEnd(id, holder, e)
	} else {
		r.ends[id] = e
	}
}

func (r *recorder) recordEnd(id leaseID, holder string, e leaseEnd) {
	if e.lost {
		r.h.Lost(id.key, holder, id.token, e.at)
	} else {
		r.h.Ended(id.key, holder, id.token, e.at)
	}
}

// onCompleted records the result of a completion.
func (r *recorder) onCompleted(id leaseID, out core.Outcome) {
	if out.Err != nil {
		r.recordDone(id.key, out.Err)
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Completed(id.key, r.holders[id], id.token, time.Now())
}

// recordDone records that a caller received the answer that the key is done, if err says so.
func (r *recorder) recordDone(key string, err error) {
	if op, ok := errors.AsType[*core.OpError](err); ok && op.Record != nil {
		r.h.SeenDone(key, op.Record.Token, time.Now())
	}
}
