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

// A server that cannot reach the locks takes few tasks from a server that can, and gives them back.
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

			r.doneWithin(tasks*9/10, start, 5*time.Second) // the good server alone takes 2.1 s
			if n := took.Load(); n > tasks/10 {
				t.Errorf("the server without locks took %d tasks in %v", n, time.Since(start))
			}
			r.doneWithin(tasks, start, 5*time.Minute)
			// The last few tasks come back to it until the other server takes them.
			if n := took.Load(); n > tasks {
				t.Errorf("the server without locks took %d tasks in %v, of %d", n, time.Since(start), tasks)
			}
		})
	}
}

// doneWithin lets time pass until the given number of tasks is done. It fails the test if that is later than limit
// after start.
func (r *rig) doneWithin(tasks int, start time.Time, limit time.Duration) {
	r.t.Helper()
	for r.ledger.count(&r.ledger.done, "") < tasks {
		if r.pass(100 * time.Millisecond); time.Since(start) > limit {
			r.t.Fatalf("%d of %d tasks done after %v", r.ledger.count(&r.ledger.done, ""), tasks, limit)
		}
	}
}

// If a task comes straight back to a server without locks, it waits for a shorter time. Its wait grows if it comes back
// again and again. A task that was away for long waits for the full time, and so do other tasks. The number of
// remembered tasks is bounded.
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

// A delivery waits 5 s for locks that are out of reach. This includes its first request, which silent nodes do not
// answer either.
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
