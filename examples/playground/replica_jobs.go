package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/gocronlock"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/queuelock"
)

// startElector has the replica stand for election.
func (r *replica) startElector(context.Context) error {
	elector, err := leader.New(r.locks, service, leader.WithCandidate(r.Name), leader.OnElected(func(ctx context.Context, t leader.Term) {
		lease, _ := core.FromContext(ctx)
		over := r.holds(lease.Key(), Event{Key: "leader", Token: t.FencingToken}, lease)
		r.say(Event{Kind: isElected, Key: "leader", Token: t.FencingToken})
		<-ctx.Done()
		err := context.Cause(ctx)
		if !errors.Is(err, core.ErrLost) {
			err = nil // it has resigned
		}
		r.say(Event{Kind: isDeposed, Key: "leader", Token: t.FencingToken})
		over(err)
	}))
	if err == nil {
		r.stops = append(r.stops, elector.Close)
	}
	return err
}

// startCron adds the job of which one replica runs each tick. The clock that is moved is its scheduler's.
func (r *replica) startCron(context.Context) error {
	scheduler, err := gocron.NewScheduler(gocron.WithClock(r.clock), gocron.WithStopTimeout(2*time.Second))
	if err != nil {
		return err
	}
	cron, err := cronlock.New(r.locks, service)
	if err != nil {
		return err
	}
	_, err = gocronlock.Add(scheduler, cron, "report", cronlock.Every(time.Second), r.writeReport,
		gocronlock.Listeners(gocron.AfterLockError(r.notRun)))
	if err != nil {
		return err
	}
	r.stops = append(r.stops, cron.Close, scheduler.ShutdownWithContext)
	scheduler.Start()
	return nil
}

func (r *replica) writeReport(ctx context.Context) error {
	defer r.holdsIn(ctx)()
	run, _ := cronlock.FromContext(ctx)
	r.say(Event{Kind: isTick, Key: "report", Token: run.FencingToken, Text: tickOf(run.Tick)})
	return stage.Sleep(ctx, between(100, 200))
}

// notRun hears why a tick does not run here. That another replica has it is what locks are for.
func (r *replica) notRun(_ uuid.UUID, job string, err error) {
	if cronlock.IsExpected(err) {
		return
	}
	e := Event{Kind: isRefused, Key: job, Text: core.ClassOf(err).String()}
	if core.ClassOf(err) == core.ClassOther { // it was asleep
		e.Text = err.Error()
	}
	r.say(e)
}

// A charge is what a task is about.
type charge struct{ Order string }

// startQueue works on tasks, one at a time for each order.
func (r *replica) startQueue(context.Context) error {
	ql, err := queuelock.New(r.locks, queuelock.WithKey(func(_ context.Context, t *asynq.Task) (string, error) {
		var c charge
		err := json.Unmarshal(t.Payload(), &c)
		return "order " + c.Order, err
	}), queuelock.WithRetention(retention))
	if err != nil {
		return err
	}
	cfg := asynq.Config{
		Concurrency: 8, TaskCheckInterval: 100 * time.Millisecond, DelayedTaskCheckInterval: 250 * time.Millisecond, ShutdownTimeout: 2 * time.Second,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }, LogLevel: asynq.FatalLevel,
	}
	if err := ql.Configure(&cfg); err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(r.followed, ql.Middleware)
	mux.HandleFunc("charge", r.charge)
	queue := redis.NewClient(&redis.Options{Addr: r.Queue, DisableIdentity: true})
	server := asynq.NewServerFromRedisClient(queue, cfg)
	if err := server.Start(mux); err != nil {
		return errors.Join(err, queue.Close())
	}
	r.stops = append(r.stops, func(context.Context) error {
		server.Shutdown()
		return queue.Close()
	})
	return nil
}

func (r *replica) charge(ctx context.Context, _ *asynq.Task) error {
	defer r.holdsIn(ctx)()
	*ctx.Value(ranKey{}).(*bool) = true
	return stage.Sleep(ctx, between(50, 250))
}

type ranKey struct{}

// followed tells what becomes of tasks: completed here, or found to be a duplicate of one that was.
func (r *replica) followed(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran, began := false, time.Now()
		err := next.ProcessTask(context.WithValue(ctx, ranKey{}, &ran), t)
		switch {
		case err == nil && ran:
			r.say(Event{Kind: isTask, Key: id, Text: "completed", Ms: inMillis(time.Since(began))})
		case err == nil:
			r.say(Event{Kind: isTask, Key: id, Text: "duplicate"})
		}
		return err
	})
}

// between is at random.
func between(least, most int) time.Duration {
	return time.Duration(least+rand.IntN(most-least)) * time.Millisecond
}
