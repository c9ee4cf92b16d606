package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A simProcess runs an asynq server and, if the plan has ticks, a Scheduler.
type simProcess struct {
	s         *simulation
	place     int
	workers   int
	places    int // waiting places
	grace     time.Duration
	retention time.Duration
	locks     *locktest.Locker
	link      *testutil.Link // to asynq's Redis
	server    *asynq.Server
	scheduler *Scheduler
	skew      atomic.Int64 // the offset of its clock, for ticks
	set       atomic.Bool  // its clock was set
	up        time.Time
	gone      chan struct{}
	app       atomic.Pointer[simApplication]
	stream    uint64
	over      atomic.Bool // the process is ending or has ended

	mu   sync.Mutex
	aims []simAim

	// The oracle's mutex guards the fields below.
	down         time.Time // when it began to end
	dead, closed bool
	inPlace      int            // deliveries on waiting places
	moves        []time.Time    // when inPlace changed
	foreign      map[string]int // events of kind EventForeignID, by their names
	returns      []time.Time    // when tasks were given back without a cooldown
	missed       []time.Time    // when ticks were missed
}

// A simApplication is a period in the life of an application. Its end ends the contexts of its tasks.
type simApplication struct {
	context.Context
	end   context.CancelFunc
	times int // how often contexts have ended before
}

// endContexts ends the contexts of all tasks of the process, and of the tasks that arrive within the given time.
func (p *simProcess) endContexts(long time.Duration) {
	app := p.app.Load()
	app.end()
	time.AfterFunc(long, func() { p.beginContexts(app.times + 1) })
}

func (p *simProcess) beginContexts(times int) {
	ctx, cancel := context.WithCancel(p.s.Context())
	p.app.Store(&simApplication{ctx, cancel, times})
}

// withApplication returns a context that also ends with the application's.
func (p *simProcess) withApplication(ctx context.Context) (ended context.Context, stop func()) {
	return join.Contexts(ctx, p.app.Load())
}

// A simAim is a fault that strikes at the next moment of a kind.
type simAim struct {
	moment, what string
	long         time.Duration
}

var simQueues = []string{"default", "low"}

// start starts a process, unless the simulation is over.
func (s *simulation) start(place int) {
	p := &simProcess{s: s, place: place, workers: simWorkers[s.Is("workers")], grace: simGraces[s.Is("grace")],
		retention: simRetentions[s.Is("retention")], link: &testutil.Link{}, gone: make(chan struct{}), up: time.Now()}
	p.beginContexts(0)
	p.places = min(p.workers-1, []int{(p.workers + 3) / 4, 0, 1, 9}[s.Is("waiters")])
	p.locks = s.locks.Replica(core.WithObserver(p.misbehaving(core.Observer{Start: p.operation, Event: p.event})))

	over := false
	s.locked(func() {
		if over = s.over; !over {
			s.alive = append(s.alive, p)
			p.stream = 2 * uint64(len(s.alive))
		}
	})
	if over {
		return
	}

	s.Network(p.locks.Link, p.stream)
	opts := append([]Option{WithGrace(p.grace), WithRetention(p.retention)}, simWaiters[s.Is("waiters")]...)
	switch {
	case s.Is("keys") > 0 && s.Is("optional") > 0:
		opts = append(opts, WithKey(Optional(ByPayloadField("key"))))
	case s.Is("keys") > 0:
		opts = append(opts, field("key"))
	}

	m, c := must(New(p.locks.Locker, opts...)), s.dialQueue()
	c.AddHook(p.link)
	p.loseCompletions(0)
	p.serve(m, c)
	p.schedule(m)
	s.locked(func() { s.processes[place] = p })
}

func (p *simProcess) serve(m *Middleware, c *redis.Client) {
	poll := simPolls[p.s.Is("poll")]
	cfg := asynq.Config{Concurrency: p.workers, TaskCheckInterval: poll, DelayedTaskCheckInterval: poll}
	cfg.Logger, cfg.LogLevel = silent{}, asynq.FatalLevel
	if p.s.Is("queues") > 0 {
		cfg.Queues = map[string]int{"default": 2, "low": 1}
	}

	heard := func(kind string, err error) {
		if errors.Is(err, ErrNotRun) {
			p.s.Violation("%s hears of a task that was given back: %v", kind, err)
		}
	}
	cfg.RetryDelayFunc = func(n int, err error, _ *asynq.Task) time.Duration {
		heard("RetryDelayFunc", err)
		return time.Duration(1+n%3) * time.Second
	}
	cfg.IsFailure = func(err error) bool { heard("IsFailure", err); return true }
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
		retried, _ := asynq.GetRetryCount(ctx)
		if most, _ := asynq.GetMaxRetry(ctx); retried < most {
			heard("ErrorHandler", err)
		}
		if err == ctx.Err() { // only asynq's own error is not wrapped
			p.s.gaveUp(p, ctx, t)
		}
	})

	if p.s.Is("base") > 0 {
		cfg.BaseContext = func() context.Context { return p.app.Load() }
	}
	must0(p.s, m.Configure(&cfg))
	p.s.listen(p, &cfg)

	mux := asynq.NewServeMux()
	mux.Use(p.outside, m.Middleware)
	mux.HandleFunc("task", p.handle)
	p.server = asynq.NewServerFromRedisClient(subscribing{c, p.s.dialQueue()}, cfg)
	must0(p.s, p.server.Start(mux))
}

// subscribing is a client that subscribes over a second client, without the simulated network. go-redis dials for a
// subscription under a mutex. In a bubble, no time passes while a goroutine waits for a mutex, so a connection that
// does not answer would block the bubble.
type subscribing struct {
	*redis.Client
	direct *redis.Client
}

func (c subscribing) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return c.direct.Subscribe(ctx, channels...)
}

func (p *simProcess) schedule(m *Middleware) {
	if p.s.Is("ticks") == 0 || time.Since(p.s.Began) > simSteps {
		return
	}
	c := p.s.queue.ClientWith(func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 500, true })
	c.AddHook(p.link)
	p.scheduler = must(m.NewScheduler(asynq.NewClientFromRedisClient(c), "simulation", time.UTC))
	if skew := p.s.Is("skew"); skew > 0 {
		p.skew.Store(int64(time.Duration((p.place*1237)%(2*skew)-skew) * time.Millisecond))
	}
	p.scheduler.now = func() time.Time { return time.Now().Add(time.Duration(p.skew.Load())) }
	task := asynq.NewTask("task:tick", []byte(`{"n":-1,"key":"0"}`))
	must0(p.s, p.scheduler.Register("tick", "@every "+simPeriod.String(), task, asynq.MaxRetry(3), asynq.Timeout(20*time.Second)))
}

// loseCompletions makes the process lose asynq's records of succeeded tasks for the given time. By the plan, it also
// loses some requests and replies of all kinds.
func (p *simProcess) loseCompletions(long time.Duration) {
	r, until := p.s.Random(p.stream+1), time.Now().Add(long)
	var mu sync.Mutex
	lost := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(1000) < p.s.Is("asynq lost") && time.Since(p.s.Began) < simSteps
	}
	p.link.OnRequest(func(cmd redis.Cmder) testutil.Action {
		if isEnqueue(cmd) {
			p.ticks(cmd)
			p.reach("tick", nil)
		}
		return testutil.Action{DropRequest: lost() || isDone(cmd) && time.Now().Before(until), DropReply: lost()}
	})
}

// ticks judges when a tick is enqueued. It must not be before the tick's instant, or more than a second after the next
// one is due.
func (p *simProcess) ticks(cmd redis.Cmder) {
	_, text, _ := strings.Cut(fmt.Sprint(cmd.Args()...), ":tick/20:")
	at, err := time.Parse(time.RFC3339, text[:min(20, len(text))])
	if late := p.scheduler.now().Sub(at); err != nil || !p.set.Load() && (late < 0 || late > simPeriod+time.Second) {
		p.s.Violation("a tick is enqueued %v late: %v", late, err)
	}
}

// aim plans a fault of the process for the next moment of that kind.
func (p *simProcess) aim(moment, what string, long time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aims = append(p.aims, simAim{moment, what, long})
}

// reach is called at each moment that faults can aim at. It causes the first fault that is planned for that moment.
func (p *simProcess) reach(moment string, d *simDelivery) {
	p.mu.Lock()
	var hit *simAim
	for i, a := range p.aims {
		if a.moment == moment {
			hit = &a
			p.aims = append(p.aims[:i:i], p.aims[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	if hit != nil && time.Since(p.s.Began) < simSteps {
		p.s.Tracef("%s on %d at %q", hit.what, p.place, moment)
		p.s.Count("at " + moment)
		p.suffer(hit.what, hit.long, d)
	}
}

// suffer causes a fault of the process, or of d if it is not nil.
func (p *simProcess) suffer(what string, long time.Duration, d *simDelivery) {
	switch what {
	case "cut locks":
		p.locks.Link.Cut()
		time.AfterFunc(long, p.locks.Link.Restore)
	case "cut asynq":
		p.s.loses(long)
		p.link.Cut()
		time.AfterFunc(long, p.link.Restore)
	case "lose":
		p.locks.Link.Lose(3)
	case "end contexts":
		p.endContexts(long)
	case "kill":
		p.ends(long, p.die)
	case "shutdown":
		p.ends(long, p.shutdown)
	case "close early":
		p.s.locked(func() { p.closed = true })
		p.s.background.Go(func() { _ = p.locks.Close(p.cancelled()) })
		p.ends(long/4+time.Second, func() { time.Sleep(long); p.shutdown() })
	case "cancel":
		if d != nil {
			p.s.background.Go(func() { _ = p.s.inspector.CancelProcessing(d.id) })
		}
	case "revoke":
		if d != nil {
			p.s.background.Go(func() { p.s.revoke(d) })
		}
	}
}

func (p *simProcess) cancelled() context.Context {
	ctx, cancel := context.WithCancel(p.s.Context())
	cancel()
	return ctx
}

// ends calls how to end the process, unless its end has begun. It starts another process after the given time.
func (p *simProcess) ends(long time.Duration, how func()) {
	if p.over.Swap(true) {
		return
	}
	p.s.locked(func() { p.down = time.Now() })
	p.s.background.Go(func() {
		how()
		time.Sleep(long)
		p.s.start(p.place)
	})
}

// die makes the process look dead to all others: its links are cut before its Scheduler and server shut down.
func (p *simProcess) die() {
	p.locks.Link.Kill()
	p.link.Kill()
	p.s.locked(func() { p.dead = true })
	close(p.gone)
	if p.scheduler != nil {
		p.scheduler.Shutdown()
	}
	p.server.Shutdown()
}

// shutdown shuts down in the order that the package document gives. Then the process ends.
func (p *simProcess) shutdown() {
	p.server.Shutdown()
	if p.scheduler != nil {
		p.scheduler.Shutdown()
	}
	p.s.locked(func() { p.closed = true })
	ctx, cancel := context.WithTimeout(p.s.Context(), 5*time.Second)
	defer cancel()
	_ = p.locks.Close(ctx)
	p.die()
}

// mend restores the process's network and ends its Scheduler. If the application has ended contexts, it restarts the
// process.
func (p *simProcess) mend() {
	if p.scheduler != nil {
		p.scheduler.Shutdown()
	}
	// Last attempts whose context the application has ended stay in their workers until a restart.
	if app := p.app.Load(); app.times > 0 || app.Err() != nil {
		p.link.Restore()
		p.locks.Link.Restore()
		p.ends(time.Second, p.shutdown)
	}
	if !p.over.Load() {
		p.link.Restore()
		p.locks.Link.Restore()
		p.locks.Link.OnRequest(nil)
	}
}

// stop shuts the process down for good.
func (p *simProcess) stop() {
	if !p.over.Swap(true) {
		p.shutdown()
	}
}

// revoke ends a lease of a delivery, as an operator would.
func (s *simulation) revoke(d *simDelivery) {
	key := d.keys[(d.retried+len(d.id))%len(d.keys)]
	state, err := s.locks.Inspect(s.Context(), key)
	if err == nil && state.Holder != nil {
		_, _ = admin.Revoke(s.Context(), s.locks.Locker, key, state.Holder.Token)
	}
}

// operation observes the process's operations on leases.
func (p *simProcess) operation(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	d := delivered(ctx)
	if d == nil {
		return ctx, nil
	}

	switch op.Kind {
	case core.OpAcquire:
		p.reach("acquire", d)
		if p.s.asks(d, op) {
			p.reach("waits", d)
		}
		return ctx, func(out core.Outcome) {
			p.s.answered(d, op, out)
			switch {
			case out.Err != nil:
			case op.Key == d.keys[0]:
				p.reach("identity granted", d)
			default:
				p.reach("key granted", d)
			}
		}
	case core.OpHold:
		p.s.holds(d, op.Key)
		return ctx, func(out core.Outcome) { p.s.holdEnds(d, op.Key, out) }
	case core.OpComplete:
		p.reach("returned", d)
		p.s.completes(d)
		return ctx, func(out core.Outcome) {
			p.s.completed(d, out)
			p.reach("completed", d)
		}
	case core.OpRelease:
		p.reach("release", d)
		at := time.Now()
		return ctx, func(out core.Outcome) { p.s.released(d, op.Key, at, out) }
	}
	return ctx, nil
}
