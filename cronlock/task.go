package cronlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// Task makes a gocron task of fn. Its context ends when the scheduler stops the job, as gocron's own does, and
// also when fn must not go on: with a cause matching core.ErrLost when the lease was lost, ErrLeadershipLost,
// or ErrReplaced. [FromContext] describes the run, core.FromContext has its lease.
//
// fn's error is what gocron gets; if the lease was lost while fn ran, it also matches core.ErrLost, even if fn
// returned nil. A job without cronlock's locker runs fn with gocron's context.
func (c *Cron) Task(fn func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		r := c.handoff.take(ctx)
		if r == nil {
			return fn(ctx)
		}
		err := fn(r.ctx)
		if lost := r.lost(); lost != nil {
			err = errors.Join(err, lost)
		}
		r.mu.Lock()
		r.returned, r.err = true, err
		r.stopped = err != nil && (ctx.Err() != nil || r.term.stopped())
		r.mu.Unlock()
		return err
	})
}

// A handoff gets a run from Lock to the task. gocron calls both with the same context, one after the other,
// but all runs of a job share it: so a second run is offered once the first has been taken.
type handoff struct {
	mu     sync.Mutex
	offers map[context.Context][]*run
}

// patience bounds how long a run is kept from starting because an earlier one has not been taken yet: the
// task of a job may not be one of Task.
const patience = time.Second

func (h *handoff) offer(ctx context.Context, r *run) {
	h.mu.Lock()
	if h.offers == nil {
		h.offers = map[context.Context][]*run{}
	}
	before := h.offers[ctx]
	r.offeredOn = ctx
	h.offers[ctx] = append(before, r)
	h.mu.Unlock()
	if len(before) == 0 || r.cl.job.plain.Load() {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, b := range before {
		select {
		case <-b.started:
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		}
	}
}

// take returns the run offered first.
func (h *handoff) take(ctx context.Context) *run {
	h.mu.Lock()
	defer h.mu.Unlock()
	offers := h.offers[ctx]
	if len(offers) == 0 {
		return nil
	}
	r := offers[0]
	r.mu.Lock()
	r.taken = true
	r.mu.Unlock()
	r.cl.job.plain.Store(false)
	h.remove(ctx, r)
	return r
}

// withdraw takes back the offer of a run that has ended, if its task did not take it.
func (h *handoff) withdraw(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(r.offeredOn, r)
}

func (h *handoff) remove(ctx context.Context, r *run) {
	offers := h.offers[ctx]
	for i, o := range offers {
		if o != r {
			continue
		}
		close(r.started)
		if len(offers) == 1 {
			delete(h.offers, ctx)
		} else {
			h.offers[ctx] = append(offers[:i:i], offers[i+1:]...)
		}
		return
	}
}
