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
	if err := serve(ctx, locker); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, locker *core.Locker) error {
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		return err
	}
	cron, err := cronlock.New(locker, scheduler, "billing") // the service: its replicas share the jobs
	if err != nil {
		return err
	}
	_, err = cron.Add("invoices", gocron.CronJob("0 3 * * *", false),
		func(ctx context.Context) error { // ctx also ends if the lease is lost
			run, _ := cronlock.FromContext(ctx)
			return invoice(ctx, run.Tick, run.FencingToken)
		},
		cronlock.AtLeastOnce(3)) // run again elsewhere if the replica dies
	if err != nil {
		return err
	}
	scheduler.Start()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 30*time.Second) // as long as the deployment waits
	defer cancel()
	return errors.Join(scheduler.ShutdownWithContext(ending), cron.Close(ending), locker.Close(ending))
}

func invoice(_ context.Context, day time.Time, token uint64) error {
	fmt.Println("invoices of", day.Format(time.DateOnly), "with token", token)
	return nil
}
