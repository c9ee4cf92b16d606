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

// Record returns an observer that records in h what a process is told: attempts,
// grants, ends and losses of leases, completions, and keys that are done. Give
// each process a name of its own. What no lock sees is left to the caller: writes
// to a resource ([history.History.Wrote]), and records whose retention is over
// ([history.History.Forget]).
//
// The history goes by the time at which the observer hears of something. That a
// lease was lost it hears a little later than the holder, which nobody can notice
// in a bubble. In real time a lease that Close takes away may seem to last until
// after the next grant.
func Record(h *history.History, process string) core.Observer {
	r := &recorder{h: h, process: process, holders: map[granted]string{}, over: map[granted]ended{}}
	return core.Observer{Start: r.start}
}

type recorder struct {
	h       *history.History
	process string

	mu       sync.Mutex
	attempts int
	holders  map[granted]string // by what they were granted
	over     map[granted]ended  // before the acquisition was
}

type granted struct {
	key   string
	token uint64
}

type ended struct {
	at   time.Time
	lost bool
}

func (r *recorder) start(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	g := granted{op.Key, op.Token}
	switch op.Kind {
	case core.OpAcquire:
		holder := r.attempt(op.Key)
		return ctx, func(out core.Outcome) { r.acquired(op.Key, holder, out) }
	case core.OpHold:
		return ctx, func(out core.Outcome) {
			r.end(g, ended{time.Now(), errors.Is(out.Err, core.ErrLost)})
		}
	case core.OpComplete:
		return ctx, func(out core.Outcome) { r.completed(g, out) }
	default: // says nothing of who holds what
		return ctx, nil
	}
}

// attempt names one.
func (r *recorder) attempt(key string) (holder string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts++
	holder = fmt.Sprintf("%s, attempt %d", r.process, r.attempts)
	r.h.Attempt(key, holder, time.Now())
	return holder
}

func (r *recorder) acquired(key, holder string, out core.Outcome) {
	if out.Err != nil {
		r.seen(key, out.Err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := granted{key, out.Token}
	r.h.Granted(key, holder, out.Token, time.Now())
	if e, over := r.over[g]; over {
		delete(r.over, g)
		r.ended(g, holder, e)
	}
	r.holders[g] = holder
}

// end notes that a lease is over, which may be before its acquisition is.
func (r *recorder) end(g granted, e ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holder, ok := r.holders[g]; ok {
		r.ended(g, holder, e)
	} else {
		r.over[g] = e
	}
}

func (r *recorder) ended(g granted, holder string, e ended) {
	if e.lost {
		r.h.Lost(g.key, holder, g.token, e.at)
	} else {
		r.h.Ended(g.key, holder, g.token, e.at)
	}
}

func (r *recorder) completed(g granted, out core.Outcome) {
	if out.Err != nil {
		r.seen(g.key, out.Err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Completed(g.key, r.holders[g], g.token, time.Now())
}

// seen records that somebody was told that the key is done.
func (r *recorder) seen(key string, err error) {
	if op, ok := errors.AsType[*core.OpError](err); ok && op.Record != nil {
		r.h.SeenDone(key, op.Record.Token, time.Now())
	}
}
