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
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

const (
	ttl  = 2 * time.Second // short, so that a killed replica's run is over while we look
	skew = -333 * time.Millisecond
)

var lockerOptions = []core.Option{core.TTL(ttl), core.WithClockWindow(ttl / 10)}

// A job is one of the service's.
type job struct {
	name, crontab string
	period, work  time.Duration
	attempts      int
	grace         time.Duration // if not 0: how late it may start for the first time
}

var jobs = []job{
	// Nothing to do: the run is over long before the replica that is late comes to the tick.
	{name: "pulse", crontab: "* * * * * *", period: time.Second, attempts: 1},
	// Takes longer than its period: ticks are skipped while a run goes on.
	{name: "slow", crontab: "* * * * * *", period: time.Second, work: 1500 * time.Millisecond, attempts: 1},
	// Must not be lost: it is run again when its replica dies, or shuts down before it is done.
	{name: "report", crontab: "*/5 * * * * *", period: 5 * time.Second, work: time.Second, attempts: 2},
}

// The replicas' environment.
const (
	envReplica     = "CRON_DEMO_REPLICA"
	envNodes       = "CRON_DEMO_NODES"
	envSkew        = "CRON_DEMO_SKEW"
	envUnprotected = "CRON_DEMO_UNPROTECTED"
	envElector     = "CRON_DEMO_ELECTOR"
	envChaos       = "CRON_DEMO_CHAOS"
	envAgain       = "CRON_DEMO_AGAIN"
)

// replica is a process of the service: what you would write. It ends when it is dismissed.
func replica(dismissed <-chan struct{}) error {
	ctx := context.Background()
	ahead, err := time.ParseDuration(os.Getenv(envSkew))
	if err != nil {
		return err
	}
	m := mode{chaos: os.Getenv(envChaos) != ""}
	if m.chaos {
		slog.SetLogLoggerLevel(slog.LevelError) // that leases are lost is what it is about
	}
	clock := stage.NewClock(ahead)
	out := &reporter{name: os.Getenv(envReplica), clock: clock, out: json.NewEncoder(os.Stdout)}

	locker, err := core.Open(strings.Split(os.Getenv(envNodes), ","), lockerOptions...)
	if err != nil {
		return err
	}
	defer locker.Close(ctx)
	scheduler, err := gocron.NewScheduler(gocron.WithClock(clock))
	if err != nil {
		return err
	}
	opts := []cronlock.Option{cronlock.WithClock(clock)}
	if os.Getenv(envElector) != "" {
		elector, err := leader.New(locker, "demo")
		if err != nil {
			return err
		}
		defer elector.Close(ctx)
		opts = append(opts, cronlock.WithElector(elector))
		if m.chaos && os.Getenv(envAgain) != "" { // it was dead when ticks fell due
			opts = append(opts, cronlock.WithCatchUp(100))
		}
	}
	cron, err := cronlock.New(locker, scheduler, "demo", opts...)
	if err != nil {
		return err
	}
	defer cron.Close(ctx)
	for _, j := range m.jobs() {
		if os.Getenv(envUnprotected) != "" {
			_, err = scheduler.NewJob(gocron.CronJob(j.crontab, true), gocron.NewTask(out.task(j)))
		} else {
			_, err = cron.Add(j.name, gocron.CronJob(j.crontab, true), out.task(j),
				cronlock.AtLeastOnce(j.attempts), // with one attempt the same as AtMostOnce
				cronlock.WithMisfireGrace(cmp.Or(j.grace, time.Minute)),
				cronlock.WithGocron(gocron.WithEventListeners(gocron.AfterLockError(out.refused))))
		}
		if err != nil {
			return err
		}
	}
	scheduler.Start()
	out.say(event{Kind: isReady})

	<-dismissed
	return scheduler.Shutdown()
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
		r.say(e)
		return err
	}
}

// refused hears why a tick does not run here. That another replica has it is what locks are for.
func (r *reporter) refused(_ uuid.UUID, job string, err error) {
	e := event{Kind: isRefused, Job: job, Text: err.Error()}
	if t, ok := errors.AsType[*cronlock.TickError](err); ok {
		e.Tick = t.Tick
	}
	switch {
	case errors.Is(err, cronlock.ErrOverlap):
		e.Kind = isOverlap
	case cronlock.IsExpected(err):
		return
	}
	r.say(e)
}

// A reporter tells the demo what happens in this process, one line each on standard output.
type reporter struct {
	name  string
	clock *stage.Clock

	mu  sync.Mutex
	out *json.Encoder
}

func (r *reporter) say(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Replica, e.At = r.name, time.Now()
	r.out.Encode(e) // fails when the demo is dead, and then this process ends as well
}
