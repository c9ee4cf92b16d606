package main

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

// startCron runs jobs that every replica has: a quick one, and one that is still at work at its next tick.
func (r *replica) startCron() error {
	cron, err := cronlock.New(r.locks, "example")
	if err != nil {
		return err
	}
	r.stops = append(r.stops, func() error { return cron.Close(context.Background()) })
	for name, took := range map[string]time.Duration{"tally": 20 * time.Millisecond, "report": 2500 * time.Millisecond} {
		job := func(ctx context.Context) error { return stage.Sleep(ctx, took) }
		if _, err := cron.Add(name, cronlock.Every(time.Second), job); err != nil {
			return err
		}
	}
	elector, err := leader.New(r.locks, "leader")
	if err != nil {
		return err
	}
	r.stops = append(r.stops, func() error { return elector.Close(context.Background()) })
	return nil
}
