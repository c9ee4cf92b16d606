package queuelock

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A server that cannot reach the locks takes few tasks from one that can, and what it has taken comes back.
func TestOneServerCutOff(t *testing.T) {
	for name, cut := range map[string]func(*testutil.Link){"refused": (*testutil.Link).Kill, "silent": (*testutil.Link).Cut} {
		bubbleOf(t, name, func(t *testing.T, r *rig) {
			const tasks = 200
			for i := range tasks {
				r.enqueue(order(i))
			}
			work := func(context.Context, *asynq.Task) error {
				return r.ledger.run("", func() error { time.Sleep(100 * time.Millisecond); return nil })
			}
			start := time.Now()
			r.serve(setup{adjust: defaults(10)}, work)
			var took atomic.Int64
			other := r.locks.Replica(core.TTL(10 * time.Second))
			cut(other.Link)
			r.serve(setup{adjust: func(cfg *asynq.Config) {
				defaults(10)(cfg)
				cfg.BaseContext = func() context.Context { took.Add(1); return context.Background() }
			}, locker: other.Locker}, work)
			r.doneWithin(tasks*9/10, start, 5*time.Second) // 2.1s is what the good server takes alone
			if n := took.Load(); n > tasks/10 {
				t.Errorf("the server without locks took %d tasks in %v", n, time.Since(start))
			}
			r.doneWithin(tasks, start, 5*time.Minute)
			if n := took.Load(); n > tasks { // the last few come back to it until the other server takes them
				t.Errorf("the server without locks took %d tasks in %v, of %d", n, time.Since(start), tasks)
			}
		})
	}
}

// doneWithin lets time pass until so many tasks are done, and checks that it is no later than limit after start.
func (r *rig) doneWithin(tasks int, start time.Time, limit time.Duration) {
	r.t.Helper()
	for r.ledger.count(&r.ledger.done, "") < tasks {
		if r.pass(100 * time.Millisecond); time.Since(start) > limit {
			r.t.Fatalf("%d of %d tasks done after %v", r.ledger.count(&r.ledger.done, ""), tasks, limit)
		}
	}
}

// A task that comes straight back to a server without locks is given back sooner, though less soon with time; one that was
// away for long, and others, are not. What is remembered is bounded.
func TestPatienceInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := outage{bounces: map[string]bounce{}}
		for i, want := range []time.Duration{5000, 156, 156, 156, 312, 312, 312, 312, 625, 625, 625, 625, 1250, 1250, 1250, 1250, 1250} {
			if got := o.startWait("t"); got.Truncate(time.Millisecond) != want*time.Millisecond {
				t.Errorf("delivery %d: %v, want %dms", i, got, want)
			} else {
				time.Sleep(got + time.Second)
			}
		}
		if got := o.startWait("other"); got != outageWait {
			t.Errorf("another task: %v", got)
		}
		time.Sleep(2 * outageWait)
		if got := o.startWait("t"); got != outageWait {
			t.Errorf("after a while: %v", got)
		}
		for i := range 2500 {
			o.startWait(fmt.Sprint(i))
		}
		if n := len(o.bounces); n > 1000 {
			t.Errorf("%d tasks are remembered", n)
		}
	})
}

// Locks that are out of reach are waited for for 5 s, with the first request, which silent nodes do not answer either.
func TestLocksAreAwaitedFor5s(t *testing.T) {
	for name, cut := range map[string]func(*testutil.Link){"refused": (*testutil.Link).Kill, "silent": (*testutil.Link).Cut} {
		bubbleOf(t, name, func(t *testing.T, r *rig) {
			locks := r.locks.Replica(core.TTL(10 * time.Second))
			cut(locks.Link)
			r.enqueue(order(1))
			r.serve(setup{locker: locks.Locker}, r.works(0))
			r.pass(4900 * time.Millisecond)
			before := r.count(EventUnavailable)
			if r.pass(300 * time.Millisecond); before > 0 || r.count(EventUnavailable) == 0 || len(r.ledger.runs) > 0 {
				t.Errorf("%v, and %d before", r.events.Counts(), before)
			}
		})
	}
}
