package cronlock

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

func init() { logging.Disable() } // go-redis prints each failed dial

// A world is a set of nodes and the replicas of a service on it, in a bubble of synctest.
type world struct {
	t       *testing.T
	nodes   []*testutil.Node
	bubbled bool                     // it is in a bubble
	sched   []gocron.SchedulerOption // of all replicas
	ends    []func()

	mu   sync.Mutex
	runs []ran
	errs []error
}

// A ran is one start of a job's function.
type ran struct {
	Run
	replica string
	at      time.Time
}

// turns is one for every two processors. A bubble waits for one: gocron spins until its goroutines have seen that they are
// to stop, and where no processor is idle that takes until it is preempted, at the end of each replica.
var turns = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// bubble runs f in a bubble, beside other tests.
func bubble(t *testing.T, nodes int, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	serialBubble(t, nodes, f)
}

// serialBubble is for tests that measure the whole process, or have one bubble after the other.
func serialBubble(t *testing.T, nodes int, f func(t *testing.T, w *world)) {
	t.Helper()
	turns <- struct{}{}
	defer func() { <-turns }()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, nodes: testutil.NewNodes(t, nodes), bubbled: true}
		defer func() {
			for i := len(w.ends) - 1; i >= 0; i-- {
				w.ends[i]()
			}
			time.Sleep(time.Minute) // for requests that were cut off: time stops with the bubble's function
		}()
		f(t, w)
	})
}

// skewed is the clock of a replica that is ahead by so much.
type skewed struct {
	clockwork.Clock
	ahead time.Duration
}

func (s skewed) Now() time.Time { return s.Clock.Now().Add(s.ahead) }

// A replica is one process of the service.
type replica struct {
	*Cron
	w     *world
	name  string
	locks *core.Locker
	sched gocron.Scheduler

	added sync.Map // jobs by name
}

var quiet = slog.New(slog.DiscardHandler)

func (w *world) locks(opts ...core.Option) *core.Locker {
	w.t.Helper()
	return w.locksVia(nil, opts...)
}

// locksVia is locks for a process whose requests pass the hook, if it is not nil.
func (w *world) locksVia(hook redis.Hook, opts ...core.Option) *core.Locker {
	w.t.Helper()
	clients := make([]redis.UniversalClient, len(w.nodes))
	for i, n := range w.nodes {
		c := n.ClientWith(func(o *redis.Options) { o.PoolSize = 200 })
		if hook != nil {
			c.AddHook(hook)
		}
		clients[i] = c
	}
	locks, err := core.New(clients, append([]core.Option{core.WithLogger(quiet)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := locks.Provision(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.ends = append(w.ends, func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		locks.Close(ctx)
		for _, c := range clients {
			c.Close()
		}
	})
	return locks
}

// replica starts one, with a scheduler that has not started.
func (w *world) replica(name string, opts ...Option) *replica {
	w.t.Helper()
	return w.replicaOn(name, w.locks(), opts...)
}

func (w *world) replicaOn(name string, locks *core.Locker, opts ...Option) *replica {
	w.t.Helper()
	return w.replicaOf("service", name, locks, opts...)
}

// seldom is for bubbles that last for weeks. Triggers are the matter of package tick's tests.
var seldom = WithTriggerPoll(24 * time.Hour)

// replicaOf is replicaOn for a service of another name.
func (w *world) replicaOf(service, name string, locks *core.Locker, opts ...Option) *replica {
	w.t.Helper()
	conf := defaults()
	for _, o := range opts {
		o.apply(&conf)
	}
	s, err := gocron.NewScheduler(append([]gocron.SchedulerOption{gocron.WithClock(conf.clock)}, w.sched...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := New(locks, s, service, append([]Option{seldom}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &replica{Cron: c, w: w, name: name, locks: locks, sched: s}
	w.ends = append(w.ends, func() {
		r.settle()
		s.Shutdown()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return r
}

// scheduler returns one that nothing is done with.
func scheduler(t *testing.T) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

// settle removes all jobs and waits for their runs to end: gocron waits for runs without letting the time of a
// bubble go on.
func (r *replica) settle() {
	if !r.w.bubbled {
		return
	}
	for _, j := range r.sched.Jobs() {
		r.sched.RemoveJob(j.ID())
	}
	time.Sleep(2 * time.Second) // for calls of Lock to end
	for synctest.Wait(); r.running() > 0; synctest.Wait() {
		time.Sleep(10 * time.Millisecond)
	}
}

// running counts the runs under way.
func (r *replica) running() int {
	n := 0
	r.added.Range(func(_, j any) bool {
		n += j.(*Job).Local().Running
		return true
	})
	return n
}

// the returns a job by its name.
func (r *replica) the(name string) *Job {
	j, _ := r.added.Load(name)
	return j.(*Job)
}

// kept is how many ticks the job keeps in memory.
func (j *Job) kept() int { return j.Local().Following + j.Local().Running }

// follows is how many ticks of others it follows.
func (j *Job) follows() int { return j.Local().Following }

// job adds a job whose runs are noted; f, if not nil, is the rest of its work.
func (r *replica) job(def gocron.JobDefinition, f func(ctx context.Context) error, opts ...JobOption) *Job {
	r.w.t.Helper()
	return r.add("job", def, f, opts...)
}

// add is job for one of another name.
func (r *replica) add(name string, def gocron.JobDefinition, f func(ctx context.Context) error, opts ...JobOption) *Job {
	r.w.t.Helper()
	j, err := r.Add(name, def, func(ctx context.Context) error {
		run, _ := FromContext(ctx)
		r.w.mu.Lock()
		r.w.runs = append(r.w.runs, ran{run, r.name, time.Now()})
		r.w.mu.Unlock()
		if f == nil {
			return nil
		}
		return f(ctx)
	}, append([]JobOption{listeners(gocron.AfterLockError(r.note))}, opts...)...)
	if err != nil {
		r.w.t.Fatal(err)
	}
	r.added.Store(name, j)
	return j
}

// stamp is how keys and records write an instant.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// A record is what is kept of a tick.
type record struct {
	Tick, By, Outcome string
	Attempt           int
}

const outcomeRan, outcomeSkipped = "ran", "skipped"

func listeners(l ...gocron.EventListener) JobOption {
	return WithGocron(gocron.WithEventListeners(l...))
}

func (r *replica) note(_ uuid.UUID, _ string, err error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.errs = append(r.w.errs, err)
}

// ran returns the runs so far.
func (w *world) ran() []ran {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]ran(nil), w.runs...)
}

// failed returns what AfterLockError has heard so far.
func (w *world) failed() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]error(nil), w.errs...)
}

// perTick counts the runs of each tick.
func (w *world) perTick() map[time.Time]int {
	n := map[time.Time]int{}
	for _, r := range w.ran() {
		n[r.Tick.UTC()]++
	}
	return n
}

const secondly = "* * * * * *"
