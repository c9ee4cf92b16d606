package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/gocronlock"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

const (
	service = "demo"
	ttl     = 2 * time.Second // short, so that a killed replica's run is over while we look
	skew    = -333 * time.Millisecond
)

func (m mode) lockerOptions() []core.Option {
	if m.chaos {
		return []core.Option{core.TTL(chaosTTL), core.WithClockWindow(0)} // clocks are further off than any window
	}
	return []core.Option{core.TTL(ttl), core.WithClockWindow(ttl / 10)}
}

func (m mode) ttl() time.Duration {
	if m.chaos {
		return chaosTTL
	}
	return ttl
}

// A job is one of the service's.
type job struct {
	name         string
	period, work time.Duration
	attempts     int
	hosted       bool // by gocron; else the engine runs it
}

// key is that of the lease under which the job runs.
func (j job) key() string { return core.Key("cron", service, j.name, "run") }

var jobs = []job{
	// Nothing to do: the run is over long before the replica that is late comes to the tick.
	{name: "pulse", period: time.Second, attempts: 1, hosted: true},
	// Takes longer than its period: runs back to back, and leaves out the ticks that a later one has superseded by then.
	{name: "slow", period: time.Second, work: 1500 * time.Millisecond, attempts: 1, hosted: true},
	// Must not be lost: it is run again when its replica dies, or shuts down before it is done.
	{name: "report", period: 5 * time.Second, work: time.Second, attempts: 2, hosted: true},
}

// The replicas' environment.
const (
	envReplica     = "CRON_DEMO_REPLICA"
	envNodes       = "CRON_DEMO_NODES"
	envSkew        = "CRON_DEMO_SKEW"
	envUnprotected = "CRON_DEMO_UNPROTECTED"
	envElector     = "CRON_DEMO_ELECTOR"
	envChaos       = "CRON_DEMO_CHAOS"
	// envProcessSkew is set to 0 where the clocks of the whole processes are moved: they are built so that time.Now is ahead
	// by so many nanoseconds. Otherwise those of their schedulers are moved.
	envProcessSkew = "CRON_DEMO_PROCESS_SKEW"
)

// replica is a process of the service: what you would write. It ends when it is dismissed.
func replica(dismissed <-chan struct{}) (err error) {
	ctx := context.Background()
	ahead, err := time.ParseDuration(os.Getenv(envSkew))
	if err != nil {
		return err
	}
	m := mode{unprotected: os.Getenv(envUnprotected) != "", elector: os.Getenv(envElector) != "", chaos: os.Getenv(envChaos) != ""}
	if m.chaos {
		slog.SetLogLoggerLevel(slog.LevelError) // that leases are lost is what it is about
	}
	out := &reporter{name: os.Getenv(envReplica), clock: stage.NewClock(ahead), out: json.NewEncoder(os.Stdout)}
	if os.Getenv(envProcessSkew) != "" { // then it is the clock of all in this process
		out.clock, out.ahead = stage.NewClock(0), ahead
	}

	locker, err := core.Open(strings.Split(os.Getenv(envNodes), ","), append(m.lockerOptions(), core.WithObserver(out.observer(m.jobs())))...)
	if err != nil {
		return err
	}
	defer locker.Close(ctx)
	var opts []cronlock.Option
	if m.elector {
		elector, err := leader.New(locker, service, leader.OnElected(out.leads))
		if err != nil {
			return err
		}
		defer elector.Close(ctx)
		opts = append(opts, cronlock.WithElector(elector))
	}
	cron, err := cronlock.New(locker, service, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cron.Close(ctx)) }()
	scheduler, err := gocron.NewScheduler(gocron.WithClock(out.clock))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scheduler.Shutdown()) }()
	for _, j := range m.jobs() {
		if err := out.add(cron, scheduler, j, m.unprotected); err != nil {
			return err
		}
	}
	scheduler.Start()
	out.say(event{Kind: isReady})
	<-dismissed
	return nil
}

// add adds a job.
func (r *reporter) add(cron *cronlock.Service, scheduler gocron.Scheduler, j job, unprotected bool) (err error) {
	schedule, policy := cronlock.Every(j.period), cronlock.AtLeastOnce(j.attempts) // 1 is the default
	switch {
	case unprotected:
		_, err = scheduler.NewJob(gocron.CronJob(crontab(j.period), true), gocron.NewTask(r.task(j)))
	case j.hosted:
		_, err = gocronlock.Add(scheduler, cron, j.name, schedule, r.task(j), gocronlock.Policy(policy))
	default:
		_, err = cron.Add(j.name, schedule, r.task(j), policy)
	}
	return err
}

// crontab says the same as cronlock.Every, for seconds that divide a minute.
func crontab(period time.Duration) string {
	return "*/" + strings.TrimSuffix(period.String(), "s") + " * * * * *"
}

// A reporter tells the demo what happens in this process, one line each on standard output.
type reporter struct {
	name  string
	clock *stage.Clock  // gocron's
	ahead time.Duration // this process's clock

	mu  sync.Mutex
	out *json.Encoder
}

func (r *reporter) say(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Replica, e.At = r.name, time.Now().Add(-r.ahead)
	r.out.Encode(e) // fails when the demo is dead, and then this process ends as well
}

// task is the work of a job.
func (r *reporter) task(j job) func(context.Context) error {
	return func(ctx context.Context) error {
		run, ok := cronlock.FromContext(ctx)
		if !ok { // unprotected
			run.Tick = r.clock.Now().Truncate(j.period)
		}
		e := event{Job: j.name, Tick: run.Tick, Attempt: run.Attempt, Token: run.FencingToken}
		e.Kind = runStarts
		r.say(e)
		err := stage.Sleep(ctx, j.work)
		e.Kind = runEnds
		if err != nil {
			e.Text = err.Error()
		}
		if lease, ok := core.FromContext(ctx); ok && ctx.Err() != nil {
			e.Overdue = max(0, time.Until(lease.ValidUntil())*-1)
		}
		r.say(e)
		return err
	}
}

// leads is told of a term.
func (r *reporter) leads(ctx context.Context, _ leader.Term) {
	r.say(event{Kind: isElected})
	<-ctx.Done()
	r.say(event{Kind: isDeposed})
}

// observer tells when this process may have the lease of a job: from before it asks for it until it was refused, or has
// given it back.
func (r *reporter) observer(all []job) core.Observer {
	names := map[string]string{}
	for _, j := range all {
		names[j.key()] = j.name
	}
	return core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
		name := names[op.Key]
		free := func(out core.Outcome) { r.say(event{Kind: isFree, Job: name, Text: textOf(out.Err)}) }
		switch {
		case name == "":
		case op.Kind == core.OpAcquire:
			r.say(event{Kind: isAsking, Job: name})
			return ctx, func(out core.Outcome) {
				if out.Err != nil {
					free(core.Outcome{})
				}
			}
		case op.Kind == core.OpRelease:
			return ctx, free
		case op.Kind == core.OpHold:
			return ctx, func(out core.Outcome) {
				if errors.Is(out.Err, core.ErrLost) {
					free(out)
				}
			}
		}
		return ctx, nil
	}}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return cmp.Or(err.Error(), "error")
}
