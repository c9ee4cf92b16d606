package cronlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A job that never returns does not keep its process from ending. Close gives up at its deadline and says which job it is,
// whose leases alone are renewed from then on. The Close of the Locker takes them away at its own deadline and tells the run,
// and another replica goes on with the job.
func TestCloseWithAStuckJob(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		r := w.replica("0", WithTriggerPoll(time.Second))
		forever, told := make(chan struct{}), make(chan error, 1)
		defer close(forever)
		r.add("stuck", gocron.CronJob(minutely, true), func(ctx context.Context) error {
			<-ctx.Done()
			told <- context.Cause(ctx)
			<-forever
			return nil
		})
		r.add("other", gocron.CronJob(minutely, true), nil)
		r.sched.Start()
		tick := untilMinute(5 * time.Second)
		if n := len(w.ran()); n != 2 {
			t.Fatalf("%d runs", n)
		}

		if err := endsIn(t, 7*time.Second, r.Close); !strings.HasSuffix(err.Error(), `of ["stuck"]: context deadline exceeded`) {
			t.Errorf("Close: %v", err)
		}
		stuck := []string{core.Key("service", "stuck", "run"), core.Key("service", "stuck", "tick", stamp(tick))}
		requests := w.requests(stuck)
		untilMinute(30 * time.Second) // past a tick, and the lease of a process that is dead
		if held := w.leases(); !slices.Equal(held, stuck) || len(told) > 0 {
			t.Errorf("held after Close: %q; the run was told: %v", held, len(told) > 0)
		}
		if theirs, others := requests(); theirs == 0 || others > 0 {
			t.Errorf("%d requests for the leases of the run, %d others", theirs, others)
		}

		if err := endsIn(t, 7*time.Second, r.locks.Close); !strings.Contains(err.Error(), "stuck") {
			t.Errorf("Close of the Locker: %v", err)
		}
		if cause := testutil.Receive(t, told); !errors.Is(cause, core.ErrLost) {
			t.Errorf("the run was told %v", cause)
		}
		if held := w.held(1); len(held) > 0 {
			t.Errorf("held after Close of the Locker: %q", held)
		}
		requests()
		time.Sleep(2 * time.Minute)
		if theirs, others := requests(); theirs > 0 || others > 0 {
			t.Errorf("after Close of the Locker, %d requests for the leases of the run, %d others", theirs, others)
		}

		w.goesOnElsewhere("stuck", 2)
	})
}

// goesOnElsewhere starts another replica, and checks that it runs the job at the next tick, after so many runs before.
func (w *world) goesOnElsewhere(job string, before int) {
	w.t.Helper()
	next := w.replica("1")
	next.add(job, gocron.CronJob(minutely, true), nil)
	next.sched.Start()
	tick := untilMinute(5 * time.Second)
	if last := w.ran()[len(w.ran())-1]; len(w.ran()) != before+1 || last.replica != "1" || !last.Tick.Equal(tick) {
		w.t.Errorf("ran %+v", w.ran())
	}
}

// endsIn calls what has nothing but its deadline to wait for, and checks that it gives up then.
func endsIn(t *testing.T, d time.Duration, wait func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	err := wait(ctx)
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took < d || took > d+time.Second {
		t.Fatalf("after %v: %v", took, err)
	}
	return err
}

// requests counts those that nodes get from now on, and from call to call: for these leases, and all others.
func (w *world) requests(leases []string) (since func() (theirs, others int64)) {
	synctest.Wait()
	var theirs, others atomic.Int64
	for _, n := range w.nodes {
		n.OnRequest(func(args []string) testutil.Action {
			if slices.ContainsFunc(args, func(a string) bool {
				return slices.ContainsFunc(leases, func(key string) bool { return strings.HasSuffix(a, key) })
			}) {
				theirs.Add(1)
			} else {
				others.Add(1)
			}
			return testutil.Action{}
		})
	}
	return func() (int64, int64) { return theirs.Swap(0), others.Swap(0) }
}
