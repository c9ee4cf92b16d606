package queuelock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func between(d, least, most time.Duration) bool { return d >= least && d <= most }

// A lateContext has ended before its Done channel is closed, as after a pause of the process. Its method Err knows it.
type lateContext struct {
	context.Context
	over *atomic.Bool
}

func (c lateContext) Err() error {
	if c.over.Load() {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// The method Err of the handler's context knows when one of the joined contexts has ended, even before its Done channel
// is closed.
func TestHandlerContextLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var over atomic.Bool
		m := r.middleware(r.locker(), field("order"))
		inner := m.Middleware(r.does(func(ctx context.Context, _ int) error {
			if err := ctx.Err(); err != nil {
				t.Error(err)
			}
			if over.Store(true); ctx.Err() == nil {
				t.Error("it has ended, and does not say so")
			}
			return ctx.Err()
		}))
		r.serve(setup{bare: true, adjust: r.configures(m)}, func(ctx context.Context, task *asynq.Task) error {
			return inner.ProcessTask(lateContext{ctx, &over}, task)
		})
		r.begun(r.enqueue(order(1), asynq.MaxRetry(0)))
		r.pass(time.Second)
	})
}
