package cronlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func init() { logging.Disable() } // go-redis would print each failed dial

// ttl is the TTL of the Lockers in these tests.
const ttl = 10 * time.Second

// A world has the nodes and the replicas of a service in a bubble, and records their runs.
type world struct {
	t      *testing.T
	nodes  []*testutil.Node
	events locktest.Events // of all replicas
	first  *locktest.Locker

	mu   sync.Mutex
	runs []ran
}

// A ran is one run of the job's function.
type ran struct {
	Run
	start time.Time
}

// bubble runs f in a bubble, in parallel with other tests. f begins the time after past midnight.
func bubble(t *testing.T, after time.Duration, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(after)
		f(t, newWorld(t))
	})
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, nodes: testutil.NewNodes(t, 3)}
	w.first = locktest.NewOn(t, w.nodes, core.WithObserver(w.events.Observer()))
	return w
}

// bubbleOf calls bubble in a subtest with the given name.
func bubbleOf(t *testing.T, name string, after time.Duration, f func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) { bubble(t, after, f) })
}

// hold returns a function that takes the time d, or ends with its context.
func hold(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// uncalled has the options of a job whose host never calls it.
var uncalled = []JobOption{WithHost(func() {})}

// each calls f for all nodes.
func (w *world) each(f func(*testutil.Node)) {
	for _, n := range w.nodes {
		f(n)
	}
}

// A plan has the settings of a replica.
type plan struct {
	schedule Schedule // every minute if nil
	host     bool     // a host calls the job at its ticks
	work     func(ctx context.Context) error
	job      []JobOption
	core     []core.Option
}

// A replica is one process of the service: a Service with one job, and possibly a host that calls the job at its ticks.
type replica struct {
	*Job
	w     *world
	name  string
	locks *locktest.Locker
	plan  plan

	stop  context.CancelFunc // ends the host
	calls sync.WaitGroup
	ended bool
}

// replica starts a replica.
func (w *world) replica(name string, p plan) *replica {
	w.t.Helper()
	r := &replica{w: w, name: name, locks: w.first.Replica(p.core...), plan: p}
	if p.schedule == nil {
		r.plan.schedule = Every(time.Minute)
	}

	s, err := New(r.locks.Locker, "service")
	if err != nil {
		w.t.Fatal(err)
	}

	ctx, stop := context.WithCancel(w.t.Context())
	r.stop = stop
	job := p.job
	ready := make(chan struct{}) // closed when r.Job is set
	if p.host {
		job = append(job, WithHost(func() { <-ready; _ = r.RunDue(ctx) }))
	}

	if r.Job, err = s.Add("job", r.plan.schedule, r.work, job...); err != nil {
		w.t.Fatal(err)
	}
	close(ready)
	if p.host {
		r.calls.Go(func() { r.hosted(ctx) })
	}

	w.t.Cleanup(r.end)
	return r
}

// replicas starts n replicas.
func (w *world) replicas(n int, p plan) (all []*replica) {
	w.t.Helper()
	for i := range n {
		all = append(all, w.replica(fmt.Sprint(i), p))
	}
	return all
}

// hosted calls the job at each tick, on a new goroutine, as a cron library does.
func (r *replica) hosted(ctx context.Context) {
	for {
		now := time.Now()
		if !pause.For(ctx, r.plan.schedule.Next(now).Sub(now)) {
			return
		}
		r.calls.Go(func() { _ = r.RunDue(ctx) })
	}
}

// work is the job's function.
func (r *replica) work(ctx context.Context) error {
	run, _ := FromContext(ctx)
	r.w.mu.Lock()
	r.w.runs = append(r.w.runs, ran{run, time.Now()})
	r.w.mu.Unlock()
	if r.plan.work != nil {
		return r.plan.work(ctx)
	}
	return nil
}

// end shuts the replica down.
func (r *replica) end() {
	if r.ended {
		return
	}
	r.ended = true
	r.stop()
	r.calls.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := r.service.Close(ctx); err != nil {
		r.w.t.Errorf("%s: %v", r.name, err)
	}
}

// ran returns the runs so far, in the order in which they started.
func (w *world) ran() []ran {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.runs)
}

// want checks that these ticks ran, in this order, and that none ran before it was due.
func (w *world) want(ticks ...time.Time) {
	w.t.Helper()
	var got, want []string
	for _, r := range w.ran() {
		got = append(got, stamp(r.Tick))
		if r.start.Before(r.Tick) {
			w.t.Errorf("tick %s ran %v early", stamp(r.Tick), r.Tick.Sub(r.start))
		}
	}
	for _, at := range ticks {
		want = append(want, stamp(at))
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("ran %v,\nwant %v", got, want)
	}
}

// ticks returns n instants, beginning with first.
func ticks(first time.Time, period time.Duration, n int) (all []time.Time) {
	for i := range n {
		all = append(all, first.Add(time.Duration(i)*period))
	}
	return all
}

// before returns the latest instant of the schedule before at.
func before(s Schedule, at time.Time) time.Time {
	at, _ = latest(s, at.Add(-1))
	return at
}

// midnight is the time at which bubbles begin.
var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns the instant that is d after midnight.
func at(d time.Duration) time.Time { return midnight.Add(d) }

// till sleeps until d after midnight.
func till(d time.Duration) { time.Sleep(time.Until(at(d))) }
