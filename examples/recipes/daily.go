package recipes

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
)

// AtThree runs report each day at three o'clock.
func AtThree(cron *cronlock.Service, report func(ctx context.Context) error) error {
	_, err := cron.Add("report", cronlock.Crontab("0 3 * * *", time.UTC), report,
		cronlock.WithGrace(20*time.Hour), // late, if no replica or no Redis was there at three
		cronlock.AtLeastOnce(3))          // again, if its replica dies in the run
	return err
}

// OnceADay runs report for the first caller of the day. Other callers get core.ErrDone, or wait while it runs.
func OnceADay(ctx context.Context, locker *core.Locker, report func(ctx context.Context) error) error {
	day := time.Now().UTC().Format(time.DateOnly)
	return locker.Once(ctx, core.Key("report", day), report)
}
