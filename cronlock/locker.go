package cronlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-co-op/gocron/v2"
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
// started is not run again. Other options than WithKey and WithRunAnyway have no effect.
func (c *Cron) Locker(name string, opts ...JobOption) gocron.Locker {
	p := c.policy
	for _, o := range opts {
		if o != nil {
			o.applyJob(&p)
		}
	}
	if p.minGap <= 0 {
		p.minGap = lockerGap
	}
	p.attempts, p.overlap = 1, Forbid
	return plain{newJob(c, name, nil, p)}
}

// A plain locker knows no ticks, and is not told whether the function was called.
type plain struct{ j *Job }

var errNoName = errors.New("the job's name is empty: replicas know the job by it")

func (p plain) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	var why error
	if p.j.name == "" {
		why = errNoName
	}
	from := newCall(p.j, func(*run, error) {})
	t := tick{at: p.j.cron.clock.Now(), gap: p.j.policy.minGap, period: p.j.policy.minGap}
	lock, err := p.j.start(ctx, t, from, why)
	if r, ok := lock.(*run); ok {
		<-from.handoff
		r.begun, r.returned = true, true
		r.event(EventRun)
	}
	return lock, err
}
