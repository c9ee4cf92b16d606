package migrate

import (
	"context"

	redislock "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/gocronlock"
)

func gocronBefore(client redis.UniversalClient, schedule gocron.JobDefinition, invoices func(context.Context) error) (gocron.Scheduler, error) {
	locks, err := redislock.NewRedisLocker(client, redislock.WithTries(1))
	if err != nil {
		return nil, err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locks))
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(schedule, gocron.NewTask(invoices), gocron.WithName("invoices"))
	return scheduler, err
}

func gocronAfter(locker *core.Locker, schedule cronlock.Schedule, invoices func(context.Context) error) (gocron.Scheduler, error) {
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		return nil, err
	}
	cron, err := cronlock.New(locker, "billing") // Close it after the scheduler's shutdown
	if err != nil {
		return nil, err
	}
	_, err = gocronlock.Add(scheduler, cron, "invoices", schedule, invoices)
	return scheduler, err
}

func gocronBoth(scheduler gocron.Scheduler, cron *cronlock.Service, locks gocron.Locker, schedule cronlock.Schedule, invoices func(context.Context) error) error {
	_, err := gocronlock.Add(scheduler, cron, "invoices", schedule, func(ctx context.Context) error {
		lock, err := locks.Lock(ctx, "invoices")
		if err != nil {
			return err // a replica of the old release has it
		}
		defer lock.Unlock(context.WithoutCancel(ctx))
		return invoices(ctx)
	})
	return err
}
