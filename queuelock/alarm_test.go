package queuelock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
)

// alarms are when the ErrorHandler of a server hears of locks that are out of reach.
type alarms struct {
	mu   sync.Mutex
	when []time.Time
}

func (a *alarms) adjust(cfg *asynq.Config) {
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if errors.Is(err, ErrNotRun) && errors.Is(err, core.ErrUnavailable) {
			a.when = append(a.when, time.Now())
		}
	})
}

// since returns how many were heard from then on, and checks how far apart they are.
func (a *alarms) since(t *testing.T, from time.Time) (n int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, at := range a.when {
		if i > 0 && at.Sub(a.when[i-1]) < 10*time.Second {
			t.Errorf("heard again after %v", at.Sub(a.when[i-1]))
		}
		if !at.Before(from) {
			n++
		}
	}
	return n
}

// ErrorHandler hears of locks that are out of reach once in 10s on each server, however many tasks they keep from running.
func TestAlarmsAreBounded(t *testing.T) {
	race.Campaign(t)
	bubble(t, func(t *testing.T, r *rig) {
		both := [2]alarms{}
		for i := range both {
			r.serve(setup{adjust: both[i].adjust}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		}
		outage := func(tasks int) {
			start, before := time.Now(), r.count(EventUnavailable)
			back := r.hang()
			for i := range tasks {
				r.enqueue(order(i))
			}
			r.pass(2 * time.Minute)
			for i := range both {
				if n := both[i].since(t, start); n < 6 || n > 12 {
					t.Errorf("server %d: heard %d times in two minutes", i, n)
				}
			}
			if n := r.count(EventUnavailable) - before; n < 100 {
				t.Errorf("only %d tasks were given back", n)
			}
			back()
			r.pass(2 * time.Minute)
			if got := len(r.ledger.done); got != tasks {
				t.Errorf("%d of %d tasks have run", got, tasks)
			}
			clear(r.ledger.done)
		}
		outage(100)
		outage(40) // again
	})
}
