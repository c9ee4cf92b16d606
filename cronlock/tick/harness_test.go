package tick

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func init() { logging.Disable() } // go-redis prints each failed dial

// ttl is that of the Lockers of these tests.
const ttl = 10 * time.Second

// A world is the nodes, the replicas of a service, and what they ran, in a bubble.
type world struct {
	t      *testing.T
	nodes  []*testutil.Node
	events locktest.Events // of all replicas
	first  *locktest.Locker

	mu   sync.Mutex
	runs []ran
	errs []error
}

// A ran is one run of the job's function.
type ran struct {
	Run
	replica    string
	start, end time.Time
	claimed    time.Time // when the host asked for it; zero where it did not
}

// bubble runs f in a bubble, beside those of other tests.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	bubbleOn(t, 3, 0, f)
}

// bubbleOn is bubble with so many nodes, which start so long after midnight.
func bubbleOn(t *testing.T, nodes int, after time.Duration, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(after)
		w := &world{t: t, nodes: testutil.NewNodes(t, nodes)}
		w.first = locktest.NewOn(t, w.nodes, core.WithObserver(w.events.Observer()))
		f(t, w)
	})
}

// every is a schedule: of all instants that its duration divides.
type every time.Duration

func (e every) Next(after time.Time) time.Time {
	return after.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// A plan is how a replica differs.
type plan struct {
	period  time.Duration // of its schedule; 0: it has none, and its host never calls
	idle    bool          // its host never calls all the same
	work    func(ctx context.Context) error
	ahead   time.Duration // of its clock
	elected bool          // WithElector
	opts    []Option
	job     []JobOption
}

// A replica is one process of the service: a Service with one job, and the host that calls for its ticks.
type replica struct {
	*Job
	w       *world
	name    string
	locks   *locktest.Locker
	elector *leader.Elector
	plan    plan

	asleep atomic.Bool
	stop   context.CancelFunc // of the host
	calls  sync.WaitGroup
	ended  bool
}

// replica starts one.
func (w *world) replica(name string, p plan) *replica {
	w.t.Helper()
	r := &replica{w: w, name: name, locks: w.first.Replica(), plan: p}
	clock := func() time.Time { return time.Now().Add(p.ahead) }
	opts := append([]Option{WithClock(clock)}, p.opts...)
	if p.elected {
		e, err := leader.New(r.locks.Locker, "group")
		if err != nil {
			w.t.Fatal(err)
		}
		r.elector, opts = e, append(opts, WithElector(e))
	}
	s, err := New(r.locks.Locker, "service", opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	job := p.job
	if p.period > 0 {
		job = append([]JobOption{WithSchedule(every(p.period))}, job...)
	}
	if r.Job, err = s.Add("job", r.work, job...); err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	r.stop = stop
	if p.period > 0 && !p.idle {
		r.calls.Go(func() { r.host(ctx, clock) })
	}
	w.t.Cleanup(r.end)
	return r
}

// replicas starts so many.
func (w *world) replicas(n int, p plan) (all []*replica) {
	w.t.Helper()
	for i := range n {
		all = append(all, w.replica(fmt.Sprint(i), p))
	}
	return all
}

// host does what a cron library does: it calls for each tick, on a goroutine of its own.
func (r *replica) host(ctx context.Context, clock func() time.Time) {
	for {
		now := clock()
		if !pause.For(ctx, every(r.plan.period).Next(now).Sub(now)) {
			return
		}
		for r.asleep.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		r.calls.Go(func() {
			err := r.RunDue(context.WithValue(ctx, claimedKey{}, time.Now()))
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			r.w.errs = append(r.w.errs, err)
		})
	}
}

type claimedKey struct{}

// work is the job's function.
func (r *replica) work(ctx context.Context) error {
	run, _ := FromContext(ctx)
	claimed, _ := ctx.Value(claimedKey{}).(time.Time)
	of := ran{Run: run, replica: r.name, start: time.Now(), claimed: claimed}
	r.w.mu.Lock()
	n := len(r.w.runs)
	r.w.runs = append(r.w.runs, of)
	r.w.mu.Unlock()
	var err error
	if r.plan.work != nil {
		err = r.plan.work(ctx)
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.runs[n].end = time.Now()
	return err
}

// end is a shutdown.
func (r *replica) end() {
	if r.ended {
		return
	}
	r.ended = true
	r.stop()
	r.asleep.Store(false)
	r.calls.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := r.service.Close(ctx); err != nil {
		r.w.t.Errorf("%s: %v", r.name, err)
	}
	if r.elector != nil {
		if err := r.elector.Close(ctx); err != nil {
			r.w.t.Errorf("%s: %v", r.name, err)
		}
	}
}

// crash is what the death of the process looks like to everybody else.
func (r *replica) crash() {
	r.locks.Link.Kill()
	r.stop()
}

// ran returns the runs so far, in the order in which they started.
func (w *world) ran() []ran {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.runs)
}

// failed returns what the hosts' calls have returned so far, but for nil.
func (w *world) failed() (errs []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// forget forgets the runs so far.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs, w.errs = nil, nil
}

// sort brings the runs so far into the order of their ticks, where that in which they started does not matter.
func (w *world) sort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.runs, func(a, b ran) int { return a.Tick.Compare(b.Tick) })
}

// want checks that these ticks ran, in this order and each once, and none before it was due.
func (w *world) want(ticks ...time.Time) {
	w.t.Helper()
	var got []string
	for _, r := range w.ran() {
		got = append(got, stamp(r.Tick))
		if r.start.Before(r.Tick) {
			w.t.Errorf("tick %s ran on %s %v early", stamp(r.Tick), r.replica, r.Tick.Sub(r.start))
		}
	}
	var want []string
	for _, at := range ticks {
		want = append(want, stamp(at))
	}
	if !slices.Equal(got, want) {
		w.t.Fatalf("ran %v,\nwant %v;\nrefused %v", got, want, w.failed())
	}
}

// ticks are n instants from the first on.
func ticks(first time.Time, period time.Duration, n int) (all []time.Time) {
	for i := range n {
		all = append(all, first.Add(time.Duration(i)*period))
	}
	return all
}

// until sleeps until so long after the next full minute, which it returns.
func untilMinute(after time.Duration) time.Time {
	minute := every(time.Minute).Next(time.Now())
	time.Sleep(time.Until(minute.Add(after)))
	return minute
}

// awaitLeader waits until one of the replicas leads.
func awaitLeader(t *testing.T, all ...*replica) *replica {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
		for _, r := range all {
			if r.elector.IsLeader(t.Context()) == nil {
				return r
			}
		}
	}
	t.Fatal("nobody leads")
	return nil
}
