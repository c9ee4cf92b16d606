package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
)

// A service with one nightly job, on as many replicas as you like: the program of each.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	locker, err := core.Open([]string{"redis://redis-a:6379", "redis://redis-b:6379", "redis://redis-c:6379"})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(serve(ctx, locker), locker.Close(context.Background())); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, locker *core.Locker) error {
	cron, err := cronlock.New(locker, "billing") // the service: its replicas share the jobs
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(cron.Options()...)
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false),
		cron.Task(func(ctx context.Context) error { // ctx also ends if the lease is lost
			run, _ := cronlock.FromContext(ctx)
			return invoice(ctx, run.Tick, run.FencingToken)
		}),
		gocron.WithName("invoices"),       // the same on every replica, in every release
		cron.Job(cronlock.AtLeastOnce(3))) // run again elsewhere if the replica dies
	if err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	return errors.Join(scheduler.Shutdown(), cron.Close(context.Background()))
}

func invoice(_ context.Context, day time.Time, token uint64) error {
	fmt.Println("invoices of", day.Format(time.DateOnly), "with token", token)
	return nil
}
