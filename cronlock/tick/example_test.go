package tick_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/tick"
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

// Three replicas are told to run the same tick. One does.
func Example() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	at := time.Now()
	for range 3 {
		locker := newLocker(node)
		service, err := tick.New(locker, "billing") // the service: its replicas share the jobs
		if err != nil {
			log.Fatal(err)
		}
		job, err := service.Add("invoices", func(ctx context.Context) error { // ctx also ends if the lease is lost
			run, _ := tick.FromContext(ctx)
			fmt.Println(run.Job, "runs, attempt", run.Attempt)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		if err := job.Run(ctx, tick.Tick{At: at, Exact: true}); errors.Is(err, core.ErrDone) {
			fmt.Println("it has run elsewhere")
		}
		if err := errors.Join(service.Close(ctx), locker.Close(ctx)); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// invoices runs, attempt 1
	// it has run elsewhere
	// it has run elsewhere
}

// withCron has robfig/cron run the ticks of a job, on every replica.
func withCron(ctx context.Context, service *tick.Service, spec string, invoice func(context.Context) error) (*cron.Cron, error) {
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, err
	}
	job, err := service.Add("invoices", invoice, tick.WithSchedule(schedule), tick.WithCatchUp(1))
	if err != nil {
		return nil, err
	}
	c := cron.New()
	c.Schedule(schedule, cron.FuncJob(func() {
		if err := job.RunDue(ctx); err != nil && !tick.IsExpected(err) {
			log.Print(err)
		}
	}))
	c.Start()
	return c, nil
}

// github.com/robfig/cron keeps the schedule on every replica. The latest tick that all of them missed, because none was up,
// runs when one is started.
func ExampleJob_RunDue() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker := newLocker(node)
	service, err := tick.New(locker, "billing")
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan tick.Run, 1)
	c, err := withCron(ctx, service, "CRON_TZ=UTC * * * * *", func(ctx context.Context) error { // each minute
		run, _ := tick.FromContext(ctx)
		ran <- run
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	run := <-ran
	fmt.Println(run.Job, run.Tick.Nanosecond(), "ns after a full minute")
	<-c.Stop().Done()
	if err := errors.Join(service.Close(ctx), locker.Close(ctx)); err != nil {
		log.Fatal(err)
	}
	// Output: invoices 0 ns after a full minute
}

// named is for asynq.SchedulerOpts.PreEnqueueFunc: it writes on a task which tick of the job it is for.
func named(job *tick.Job) func(*asynq.Task, []asynq.Option) {
	return func(task *asynq.Task, _ []asynq.Option) {
		if due, ok := job.Due(); ok {
			task.Headers()["tick"] = due.At.Format(time.RFC3339)
		}
	}
}

// handler runs the tick that is written on a task. One that another task of the same tick has run is done, and what is to
// run again is the job's policy, so that asynq need only try again what no quorum of nodes answered.
func handler(job *tick.Job) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		at, err := time.Parse(time.RFC3339, task.Headers()["tick"])
		if err != nil {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		if err = job.Run(ctx, tick.Tick{At: at, Exact: true}); tick.IsExpected(err) {
			return nil
		}
		return err
	}
}

// The scheduler of asynq runs on every replica, and each enqueues a task for each tick. The task says which tick it is for,
// so that the first one that a server takes runs it, and the others find it done: whatever the clocks of the replicas, and
// however long the tasks wait, up to the misfire grace.
func ExampleJob_Due() {
	ctx := context.Background()
	node, queue := testutil.StartNode(), testutil.StartNode()
	defer node.Close()
	defer queue.Close()
	locker := newLocker(node)
	service, err := tick.New(locker, "billing")
	if err != nil {
		log.Fatal(err)
	}
	const spec = "0 3 * * *"                                   // asynq takes it for UTC
	schedule, err := cron.ParseStandard("CRON_TZ=UTC " + spec) // robfig/cron for local time
	if err != nil {
		log.Fatal(err)
	}
	job, err := service.Add("invoices", func(context.Context) error { return nil },
		tick.WithSchedule(schedule),
		tick.WithMisfireGrace(time.Hour), // for so long a task may wait in the queue,
		tick.WithOverlap(tick.Allow))     // and those that did would skip each other
	if err != nil {
		log.Fatal(err)
	}
	scheduler := asynq.NewSchedulerFromRedisClient(queue.Client(), &asynq.SchedulerOpts{PreEnqueueFunc: named(job), LogLevel: asynq.FatalLevel})
	if _, err := scheduler.Register(spec, asynq.NewTaskWithHeaders("invoices", nil, map[string]string{"tick": ""})); err != nil {
		log.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.Handle("invoices", handler(job))
	server := asynq.NewServerFromRedisClient(queue.Client(), asynq.Config{LogLevel: asynq.FatalLevel})
	if err := errors.Join(server.Start(mux), scheduler.Start()); err != nil {
		log.Fatal(err)
	}
	scheduler.Shutdown()
	server.Shutdown()
	if err := errors.Join(service.Close(ctx), locker.Close(ctx)); err != nil {
		log.Fatal(err)
	}
}
