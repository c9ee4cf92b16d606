package node

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/internal/stall"
)

// A waiter blocks one caller until a round is over. Waiters are pooled.
type waiter struct {
	done  chan struct{} // buffered, so that finish does not block
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

// Wait blocks until the round is over, at the latest for its timeout. If ctx ends first, Wait ends the round and
// returns false. After Wait, the votes belong to the caller.
func (r *Round) Wait(ctx context.Context) bool {
	w := r.newWaiter(r.Timeout)
	r.mu.Lock()
	if !r.over {
		r.waiter = w
	} else {
		w.done <- struct{}{}
	}
	r.mu.Unlock()

	// Every branch drains done, so that the next round finds it empty.
	cancelled := false
	select {
	case <-w.done:
	case <-w.timer.C:
		r.TimeOut()
		<-w.done
	case <-ctx.Done():
		r.Abandon()
		<-w.done
		cancelled = true
	}
	stall.At(stall.Wake, stall.Anywhere, r.Group)

	w.timer.Stop()
	r.waiters.Put(w)
	return !cancelled
}
