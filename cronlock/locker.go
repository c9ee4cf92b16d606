package cronlock

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/cronlock/tick"
)

// lockerGap is the minimum gap of a Locker that was given none: for jobs that are due every second.
const lockerGap = 900 * time.Millisecond

// Locker returns a gocron.Locker for a job that the scheduler gets without Add, as other lockers of gocron's are used:
//
//	scheduler.NewJob(definition, task, gocron.WithDistributedJobLocker(cron.Locker("invoices")))
//
// It promises less than Add. Runs of the job, known by the given name, do not overlap, and nobody starts it within the
// minimum gap of its last start, by the nodes' clocks: 0.9 s, or what [WithMinGap] says; nine tenths of the period is
// right. RunNow counts like any other start. The function is not told when its lease is lost, and what a dead replica has
// started is not run again. Other options than WithKey and WithRunAnyway have no effect. What [Cron.Add] would refuse, each
// call of Lock does.
func (c *Cron) Locker(name string, opts ...JobOption) gocron.Locker {
	conf := jobConfig{policy: []tick.JobOption{tick.WithMinGap(lockerGap)}}
	for _, o := range opts {
		if o != nil {
			o.applyJob(&conf)
		}
	}
	// What is called does nothing, and the run ends with gocron's own task.
	done := func(context.Context) error { return nil }
	job, err := c.service.Add(name, done, append(conf.policy, tick.AtMostOnce(), tick.WithOverlap(Forbid), tick.WithHost(nobody))...)
	return plain{c, job, err}
}

// nobody is the host of a Locker's job: a later one takes its name.
var nobody = tick.Host{
	Run: func(context.Context, func(context.Context) (*tick.Claim, error)) error { return errDropped },
	Has: func() bool { return false },
}

// A plain locker knows no ticks, and is not told whether the function was called.
type plain struct {
	cron *Cron
	job  *tick.Job
	err  error
}

func (p plain) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	if p.err != nil {
		return nil, p.err
	}
	claim, err := p.job.Claim(ctx, tick.Tick{At: p.cron.clock.Now()})
	if err != nil {
		return nil, err
	}
	if err := claim.Call(); err != nil { // it can not begin any more
		_ = claim.End()
		return nil, err
	}
	return &delivery{claim: claim, taken: true, ended: func(error) {}}, nil
}
