package node

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/internal/stall"
)

// A waiter is what somebody waits for a round with. It is used again.
type waiter struct {
	over  chan struct{} // has room for one
	timer *time.Timer
}

func (g *Group) newWaiter(d time.Duration) *waiter {
	w, _ := g.waiters.Get().(*waiter)
	if w == nil {
		return &waiter{make(chan struct{}, 1), time.NewTimer(d)}
	}
	w.timer.Reset(d)
	return w
}

// Wait returns when the round is over; false if ctx ended first, which ends the round. The votes are the
// caller's from then on.
func (r *Round) Wait(ctx context.Context) bool {
	w := r.newWaiter(r.Timeout)
	r.mu.Lock()
	if !r.over {
		r.waiter = w
	} else {
		w.over <- struct{}{}
	}
	r.mu.Unlock()
	cancelled := false
	select {
	case <-w.over:
	case <-w.timer.C:
		r.Expire()
		<-w.over
	case <-ctx.Done():
		r.Leave()
		<-w.over
		cancelled = true
	}
	stall.At(stall.Wake, stall.Anywhere, r.Group)
	w.timer.Stop()
	r.waiters.Put(w)
	return !cancelled
}
