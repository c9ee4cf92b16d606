package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// A node that forgets all between a run and a late replica's claim does not make the tick run again.
func TestNodeEmptied(t *testing.T) {
	for name, empty := range map[string]func(*testutil.Node){"restarted": (*testutil.Node).RestartEmpty, "flushed": (*testutil.Node).Flush} {
		for i := range 3 {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) { nodeEmptied(t, w, func() { empty(w.nodes[i]) }) })
			})
		}
	}
}

// nodeEmptied empties a node after a run, before a late replica claims the tick.
func nodeEmptied(t *testing.T, w *world, empty func()) {
	prompt := w.replica("on time")
	prompt.job(gocron.CronJob(minutely, true), nil)
	late := w.replica("late", WithClock(skewed{defaults().clock, -300 * time.Millisecond}))
	late.job(gocron.CronJob(minutely, true), nil)
	time.Sleep(time.Second) // past midnight, by the late replica's clock too
	prompt.sched.Start()
	late.sched.Start()
	time.Sleep(59*time.Second + 200*time.Millisecond)
	if n := len(w.ran()); n != 1 {
		t.Fatalf("%d runs on time", n)
	}
	empty()
	time.Sleep(30 * time.Second)
	if runs := w.ran(); len(runs) != 1 {
		t.Errorf("runs: %v", runs)
	}
	if len(w.failed()) != 1 || !errors.Is(w.failed()[0], core.ErrDone) && !errors.Is(w.failed()[0], core.ErrUnavailable) {
		t.Errorf("the late replica's error: %v", w.failed())
	}
}

// The nodes are away when the tick comes.
func TestNodesDown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   []Option
		back   time.Duration // how long after the tick
		starts int
		token  bool
	}{
		{"by default", nil, 20 * time.Second, 0, false},
		{"run anyway", []Option{WithRunAnyway(true)}, 20 * time.Second, 3, false},
		{"at least once", []Option{AtLeastOnce(2)}, 20 * time.Second, 1, true},
		{"at least once, past the grace", []Option{AtLeastOnce(2), WithMisfireGrace(15 * time.Second)}, 20 * time.Second, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.awayAtTheTick(tt.back, tt.opts)
				runs := w.ran()
				if len(runs) != tt.starts {
					t.Errorf("%d starts, want %d: %v; errors: %v", len(runs), tt.starts, runs, w.failed())
				}
				for _, r := range runs {
					if protected := r.FencingToken > 0; protected != tt.token {
						t.Errorf("a run has token %d", r.FencingToken)
					}
				}
				if len(w.failed()) != 3 && len(runs) < 3 {
					t.Errorf("%d replicas were told: %v", len(w.failed()), w.failed())
				}
				w.onlyUnavailable()
			})
		})
	}
}

// awayAtTheTick takes most of the nodes away for a while when a tick comes.
func (w *world) awayAtTheTick(back time.Duration, opts []Option) {
	w.t.Helper()
	for i := range 3 {
		r := w.replica(fmt.Sprint(i), opts...)
		r.job(gocron.CronJob(minutely, true), nil)
		r.sched.Start()
	}
	time.Sleep(59 * time.Second)
	for _, n := range w.nodes[:2] {
		n.Down()
	}
	time.Sleep(time.Second + back)
	for _, n := range w.nodes {
		n.Up()
	}
	time.Sleep(38 * time.Second) // not to the next tick
}

func (w *world) onlyUnavailable() {
	w.t.Helper()
	for _, err := range w.failed() {
		if !errors.Is(err, core.ErrUnavailable) || IsExpected(err) {
			w.t.Errorf("told %v", err)
		}
	}
}

// A majority of nodes fails at each request of a run in turn: a tick never starts twice under at most once, and
// under at least once it is completed.
func TestFaultSweep(t *testing.T) {
	race.Campaign(t)
	type fault struct {
		name string
		hit  func(*testutil.Node) testutil.Action
	}
	for _, f := range []fault{
		{"reply lost", func(*testutil.Node) testutil.Action { return testutil.Action{DropReply: true} }},
		{"request lost", func(*testutil.Node) testutil.Action { return testutil.Action{DropRequest: true} }},
		{"hangs", func(n *testutil.Node) testutil.Action { n.Hang(); return testutil.Action{} }},
	} {
		for _, attempts := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d attempts", f.name, attempts), func(t *testing.T) {
				t.Parallel()
				reached := true
				for k := 1; reached; k++ {
					if k > 100 {
						t.Fatal("the sweep does not end")
					}
					serialBubble(t, 3, func(t *testing.T, w *world) {
						reached = sweep(t, w, k, attempts, f.hit)
					})
				}
			})
		}
	}
}

// sweep runs a tick on two replicas, with the k-th request that two of the nodes get failing. It is false when
// there were not so many.
func sweep(t *testing.T, w *world, k, attempts int, hit func(*testutil.Node) testutil.Action) bool {
	var completed int
	for i := range 2 {
		r := w.replica(fmt.Sprint(i), AtLeastOnce(attempts))
		r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
			time.Sleep(time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			if ctx.Err() == nil {
				completed++
			}
			return ctx.Err()
		})
		r.sched.Start()
	}
	time.Sleep(59500 * time.Millisecond)
	var mu sync.Mutex
	reached := false
	for _, n := range w.nodes[:2] {
		seen := 0
		n.OnRequest(func(args []string) testutil.Action {
			mu.Lock()
			defer mu.Unlock()
			if seen++; seen != k {
				return testutil.Action{}
			}
			reached = true
			return hit(n)
		})
	}
	time.Sleep(5 * time.Second) // what asks after that has nothing to do with the run
	mu.Lock()
	within := reached
	mu.Unlock()
	for _, n := range w.nodes {
		n.OnRequest(nil)
		n.Up()
	}
	time.Sleep(50 * time.Second)
	runs := w.ran()
	if len(runs) > attempts {
		t.Errorf("request %d: %d starts: %v", k, len(runs), runs)
	}
	for i := 1; i < len(runs); i++ { // one may be missing: recorded, but not known to be, so not started
		if runs[i].Attempt <= runs[i-1].Attempt || runs[i].FencingToken <= runs[i-1].FencingToken {
			t.Errorf("request %d: attempts or tokens do not grow: %v", k, runs)
		}
	}
	if attempts > 1 && completed == 0 {
		t.Errorf("request %d: not completed: %v; errors: %v", k, runs, w.failed())
	}
	return within
}

// A caller of Lock that gives up, at whatever request, leaves no lease behind.
func TestLockCancelled(t *testing.T) {
	race.Campaign(t)
	t.Parallel()
	for node := range 3 {
		reached := true
		for k := 1; reached; k++ {
			serialBubble(t, 3, func(t *testing.T, w *world) { reached = lockCancelled(t, w, node, k) })
			if k == 1 && !reached {
				t.Fatal("no request was made")
			}
		}
	}
}

// lockCancelled cancels a call of Lock when the node gets its k-th request. It is false when there were not so many.
func lockCancelled(t *testing.T, w *world, node, k int) (reached bool) {
	r := w.replica("0", WithMinGap(time.Minute)) // all that a run can need
	j := r.job(gocron.CronJob(minutely, true), nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen atomic.Int64
	w.nodes[node].OnRequest(func([]string) testutil.Action {
		if seen.Add(1) == int64(k) {
			cancel()
		}
		return testutil.Action{}
	})
	lock, err := onSchedule{j}.Lock(ctx, "job")
	if reached = ctx.Err() != nil; !reached && err != nil {
		t.Fatal(err)
	}
	if err == nil {
		if len(w.leases()) == 0 {
			t.Error("Lock without a lease")
		}
		if err := lock.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(time.Second)
	if held := w.held(1); len(held) > 0 {
		t.Errorf("cancelled at request %d of node %d: held: %q", k, node, held)
	}
	return reached
}
