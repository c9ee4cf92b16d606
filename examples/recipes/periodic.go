package recipes

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
)

// PeriodicTasks runs a PeriodicTaskManager of asynq on one process of the fleet. Close the Elector before the Locker.
func PeriodicTasks(locker *core.Locker, opts asynq.PeriodicTaskManagerOpts) (*leader.Elector, error) {
	return leader.New(locker, "periodic tasks", leader.OnElected(func(ctx context.Context, _ leader.Term) {
		for ctx.Err() == nil {
			err := manageTasks(ctx, opts)
			if err != nil {
				locker.Logger().WarnContext(ctx, "periodic tasks failed", "err", err)
				pause(ctx, time.Second)
			}
		}
	}))
}

// manageTasks runs a manager until ctx ends. A manager cannot be started a second time.
func manageTasks(ctx context.Context, opts asynq.PeriodicTaskManagerOpts) error {
	manager, err := asynq.NewPeriodicTaskManager(opts)
	if err != nil {
		return err
	}
	err = manager.Start()
	if err != nil {
		return err
	}
	<-ctx.Done()
	manager.Shutdown()
	return nil
}
