package queuelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis prints each failed dial
	m.Run()
}

// A rig is the environment of a test: a Redis for asynq, lock nodes, and a record of the tasks' runs.
type rig struct {
	t         *testing.T
	queue     *testutil.Node     // embedded, in a bubble
	nodes     []*testutil.Node   // likewise
	locks     *locktest.Locker   // of a process of its own on these nodes
	servers   []*testutil.Server // in real time: three lock nodes, then asynq's Redis
	client    *asynq.Client
	inspector *asynq.Inspector

	ledger ledger
	events locktest.Events
	logs   logbook.Book
}

// bubble runs f on embedded servers in a synctest bubble, where asynq's minutes pass at once.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	bubbleNow(t, f)
}

// bubbleOf runs bubble in a subtest with the given name.
func bubbleOf(t *testing.T, name string, f func(t *testing.T, r *rig)) {
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// bubbleNow is bubble for tests that must not be parallel.
func bubbleNow(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, nodes: testutil.NewNodes(t, 3), queue: testutil.NewNodes(t, 1)[0]}
		t.Cleanup(r.idle) // runs after all cleanups that are registered later
		r.locks = locktest.NewOn(t, r.nodes, core.WithObserver(r.events.Observer()), core.WithLogger(r.logs.Logger()),
			core.TTL(3*time.Second), core.WithClockWindow(50*time.Millisecond))
		r.open()
		f(t, r)
	})
}

// onRedis returns a rig on real servers: three for locks, one for asynq.
func onRedis(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{t: t, servers: testutil.NewServers(t, 4)}
	locker := r.locker()
	// On a busy machine, an attempt may time out.
	testutil.Await(t, "the nodes are declared new", func() bool { return admin.Provision(t.Context(), locker) == nil })
	r.open()
	return r
}

// must returns v, and panics on an error. It and must0 are for errors that only a fault of the test or the machine can
// cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func must0(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) open() {
	c := r.dialQueue()
	r.client, r.inspector = asynq.NewClientFromRedisClient(c), asynq.NewInspectorFromRedisClient(c)
}

func (r *rig) dialQueue() *redis.Client {
	if r.servers != nil {
		return r.servers[3].ClientWith(nil)
	}
	return r.queue.ClientWith(func(o *redis.Options) { o.PoolSize = 500 })
}

// locker returns the Locker of a new process. In real time it has the default options, which tolerate late requests and
// renewals.
func (r *rig) locker() *core.Locker {
	r.t.Helper()
	if r.locks != nil {
		return r.locks.Replica().Locker
	}
	var clients []redis.UniversalClient
	for _, s := range r.servers[:3] {
		clients = append(clients, s.Client())
	}
	l := must(core.New(clients, core.WithLogger(r.logs.Logger()), core.WithObserver(r.events.Observer())))
	r.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // Close then ends the leases that are still held
		l.Close(ctx)
	})
	return l
}

// A process runs an asynq server.
type process struct {
	*asynq.Server
	link   *testutil.Link // to asynq's Redis
	m      *Middleware
	locker *core.Locker
}

// A setup is the configuration of a server.
type setup struct {
	bare   bool         // without the middleware
	locker *core.Locker // nil: the server gets one of its own
	adjust func(*asynq.Config)
	opts   []Option
}

// serve starts a server that runs h.
func (r *rig) serve(s setup, h asynq.HandlerFunc) *process {
	r.t.Helper()
	srv := &process{link: &testutil.Link{}}
	c := r.dialQueue()
	c.AddHook(srv.link)

	cfg := asynq.Config{Concurrency: 8, TaskCheckInterval: 3 * time.Second, DelayedTaskCheckInterval: 3 * time.Second, Logger: silent{}, LogLevel: asynq.FatalLevel}
	if r.servers != nil {
		cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = 20*time.Millisecond, 100*time.Millisecond
		cfg.ShutdownTimeout = 300 * time.Millisecond
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}
	if s.adjust != nil {
		s.adjust(&cfg)
	}

	mux := asynq.NewServeMux()
	if !s.bare {
		if srv.locker = s.locker; srv.locker == nil {
			srv.locker = r.locker()
		}
		srv.m = r.middleware(srv.locker, s.opts...)
		mux.Use(srv.m.Middleware)
		r.configures(srv.m)(&cfg)
	}

	mux.HandleFunc("task", h)
	srv.Server = asynq.NewServerFromRedisClient(c, cfg)
	must0(r.t, srv.Start(mux))
	r.t.Cleanup(srv.Shutdown)
	return srv
}

func (r *rig) middleware(l *core.Locker, opts ...Option) *Middleware { return must(New(l, opts...)) }

// configures returns a function that applies m to a server's configuration. The handler must be wrapped in m
// separately.
func (r *rig) configures(m *Middleware) func(*asynq.Config) {
	return func(cfg *asynq.Config) { must0(r.t, m.Configure(cfg)) }
}

func (r *rig) enqueue(task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	return must(r.client.Enqueue(task, opts...))
}

// state returns asynq's state of the task, or "gone" if asynq does not have it.
func (r *rig) state(info *asynq.TaskInfo) string {
	got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
	switch {
	case errors.Is(err, asynq.ErrTaskNotFound):
		return "gone"
	case err != nil:
		return err.Error()
	}
	return got.State.String()
}

// pass lets d pass in a bubble, and returns when nothing more happens at that time.
func (r *rig) pass(d time.Duration) {
	r.ledger.meet() // orders the test's reads before the handlers' writes
	time.Sleep(d)
	synctest.Wait()
	r.ledger.meet()
}

// idle waits for the handlers that asynq has given up on: in a bubble, no time passes after the test.
func (r *rig) idle() {
	busy := func() (n int) {
		r.ledger.mu.Lock()
		defer r.ledger.mu.Unlock()
		for _, running := range r.ledger.running {
			n += running
		}
		return n
	}
	for start := time.Now(); busy() > 0; r.pass(time.Second) {
		if time.Since(start) > 10*time.Minute {
			r.t.Fatal("handlers do not return")
		}
	}
}

// begun lets time pass in a bubble until the handler of the task has begun.
func (r *rig) begun(info *asynq.TaskInfo) {
	r.t.Helper()
	for start := time.Now(); r.ledger.count(&r.ledger.runs, info.ID) == 0; r.pass(100 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			r.t.Fatal("does not begin")
		}
	}
}

// A ledger records the runs of handlers.
type ledger struct {
	mu       sync.Mutex
	running  map[string]int
	runs     map[string]int // handlers started
	done     map[string]int // handlers that returned nil
	overlaps int            // handlers started while another one ran for the same key
	again    int            // handlers started after another one had returned nil for the same key
}

// run calls work as the handler of key, and records the run.
func (l *ledger) run(key string, work func() error) error {
	l.mu.Lock()
	if l.runs == nil {
		l.running, l.runs, l.done = map[string]int{}, map[string]int{}, map[string]int{}
	}
	l.runs[key]++
	if l.running[key] > 0 {
		l.overlaps++
	}
	if l.done[key] > 0 {
		l.again++
	}
	l.running[key]++
	l.mu.Unlock()
	err := errNever // remains if work panics
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running[key]--
		if err == nil {
			l.done[key]++
		}
	}()
	err = work()
	return err
}

var errNever = errors.New("did not return")

// does returns a handler that the ledger records under the id of its task. work receives the number of the run of the
// task, from 1.
func (r *rig) does(work func(ctx context.Context, run int) error) asynq.HandlerFunc {
	return func(ctx context.Context, _ *asynq.Task) error {
		return r.ledger.run(taskID(ctx), func() error { return work(ctx, r.ledger.count(&r.ledger.runs, taskID(ctx))) })
	}
}

// works returns a handler that takes d and ignores its context.
func (r *rig) works(d time.Duration) asynq.HandlerFunc {
	return r.does(func(context.Context, int) error { time.Sleep(d); return nil })
}

// meet locks and unlocks the mutex. This orders the caller's unlocked accesses after the earlier accesses of handlers
// and before their later ones.
func (l *ledger) meet() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

func (l *ledger) count(of *map[string]int, key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return (*of)[key]
}

// take makes another process hold the key of order n until back is called.
func (r *rig) take(n int) (back func()) {
	lease := must(r.locker().Acquire(context.Background(), core.Key("order", fmt.Sprint(n))))
	back = sync.OnceFunc(func() { lease.Release(context.Background()) })
	r.t.Cleanup(back)
	return back
}

// theID is the id that ID("t") sets, for tests with one task.
const theID = "lockkit:1:t"

func taskID(ctx context.Context) string { id, _ := asynq.GetTaskID(ctx); return id }

// script reports whether cmd is a script whose keys and arguments contain all the parts, but not the text without.
func script(cmd redis.Cmder, without string, parts ...string) bool {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return false
	}
	has := func(part string) bool {
		return slices.ContainsFunc(cmd.Args()[3:], func(arg any) bool {
			text, _ := arg.(string)
			return strings.Contains(text, part)
		})
	}
	for _, part := range parts {
		if !has(part) {
			return false
		}
	}
	return without == "" || !has(without)
}

// isDone reports whether asynq records the success of a task with cmd.
func isDone(cmd redis.Cmder) bool { return script(cmd, ":failed", ":active", ":lease", ":processed:") }

// count returns how many events of that kind package queuelock has reported.
func (r *rig) count(kind core.EventKind) int { return r.events.Count("queuelock " + string(kind)) }

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}
