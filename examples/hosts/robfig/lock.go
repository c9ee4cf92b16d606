// Package robfig runs each tick of a job of robfig/cron once. Copy lock.go.
package robfig

import (
	"context"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/cronlock"
)

// addJob adds a job to a scheduler, so that one process runs each tick. The scheduler must have the time zone of the job:
// cron.New(cron.WithLocation(time.UTC)).
func addJob(
	ctx context.Context, scheduler *cron.Cron, service *cronlock.Service,
	name, spec string, fn func(ctx context.Context) error,
) error {
	var job *cronlock.Job
	added := make(chan struct{})
	tick := func() {
		<-added // the service may ask before Add has returned
		if err := job.RunDue(ctx); err != nil && !cronlock.IsExpected(err) {
			slog.ErrorContext(ctx, "job failed", "job", name, "err", err)
		}
	}
	job, err := service.Add(name, cronlock.Crontab(spec, time.UTC), fn, cronlock.WithHost(tick))
	if err != nil {
		return err
	}
	close(added)
	_, err = scheduler.AddFunc(spec, tick)
	return err
}
