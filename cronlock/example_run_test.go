package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
)

// newLocker stands for that of a process. A service has three nodes or more; one needs no Provision.
func newLocker(node *testutil.Node) *core.Locker {
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	return locker
}

// start starts a replica with a job that is due every second, and tells what becomes of the ticks.
func start(locker *core.Locker, ran chan<- cronlock.Run, refused chan<- error, opts ...cronlock.Option) (stop func()) {
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	cron, err := cronlock.New(locker, scheduler, "billing", opts...)
	if err != nil {
		log.Fatal(err)
	}
	_, err = cron.Add("invoices", gocron.CronJob("* * * * * *", true),
		func(ctx context.Context) error {
			run, _ := cronlock.FromContext(ctx)
			ran <- run
			return ctx.Err() // nil for as long as the lease is trusted
		},
		cronlock.WithGocron(gocron.WithEventListeners(
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err }))))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	return func() {
		if err := errors.Join(scheduler.Shutdown(), cron.Close(context.Background())); err != nil {
			log.Fatal(err)
		}
	}
}

// Two replicas have the same job: one of them runs a tick, and knows which tick it is.
func ExampleFromContext() {
	node := testutil.StartNode()
	defer node.Close()
	ran, refused := make(chan cronlock.Run, 100), make(chan error, 100)
	for range 2 {
		locker := newLocker(node)
		defer locker.Close(context.Background())
		defer start(locker, ran, refused)()
	}

	run, err := <-ran, <-refused
	fmt.Println(run.Service, run.Job, "attempt", run.Attempt)
	fmt.Println("a tick on the second:", run.Tick.Nanosecond() == 0)
	fmt.Println("a fencing token:", run.FencingToken > 0)
	fmt.Println("the other replica: held or done:", errors.Is(err, core.ErrHeld) || errors.Is(err, core.ErrDone))
	// Output:
	// billing invoices attempt 1
	// a tick on the second: true
	// a fencing token: true
	// the other replica: held or done: true
}

// A function that asks for its run is tested without a scheduler.
func ExampleNewContext() {
	invoice := func(ctx context.Context) error {
		run, _ := cronlock.FromContext(ctx)
		fmt.Printf("invoices of %s, token %d\n", run.Tick.Format(time.DateOnly), run.FencingToken)
		return nil
	}
	tick := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
	ctx := cronlock.NewContext(context.Background(), cronlock.Run{Job: "invoices", Tick: tick, Attempt: 1, FencingToken: 7})
	fmt.Println(invoice(ctx))
	// Output:
	// invoices of 2026-11-01, token 7
	// <nil>
}

// A run that goes on learns from its context that another replica may be at it.
func ExampleCron_Add() {
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()}, core.TTL(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Shutdown()
	cron, err := cronlock.New(locker, scheduler, "billing")
	if err != nil {
		log.Fatal(err)
	}

	stopped := make(chan error, 10)
	job, err := cron.Add("invoices", gocron.CronJob("0 3 * * *", false), func(ctx context.Context) error {
		node.Down() // all of the nodes are cut off
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	if err := job.RunNow(); err != nil { // beside its ticks
		log.Fatal(err)
	}
	fmt.Println("lost:", errors.Is(<-stopped, core.ErrLost))
	node.Up()
	// Output:
	// lost: true
}

// Only the leader runs jobs. Each run is under its tick's lock all the same, so that a leader who does not
// know yet that it is none does no harm.
func ExampleWithElector() {
	node := testutil.StartNode()
	defer node.Close()
	ran, refused := make(chan cronlock.Run, 100), make(chan error, 100)
	for i := range 2 {
		locker := newLocker(node)
		defer locker.Close(context.Background())
		elected := make(chan leader.Term, 1)
		elector, err := leader.New(locker, "billing",
			leader.OnElected(func(_ context.Context, t leader.Term) { elected <- t }))
		if err != nil {
			log.Fatal(err)
		}
		defer elector.Close(context.Background())
		if i == 0 {
			fmt.Println("the first replica leads", (<-elected).Group)
		}
		defer start(locker, ran, refused, cronlock.WithElector(elector))()
	}

	fmt.Println("it ran", (<-ran).Job)
	fmt.Println("the other replica: not the leader:", errors.Is(<-refused, cronlock.ErrNotLeader))
	// Output:
	// the first replica leads billing
	// it ran invoices
	// the other replica: not the leader: true
}
