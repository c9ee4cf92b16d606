package cronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/tick"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
)

// source names this package in events.
const source = "cronlock"

// A Cron makes jobs of one gocron scheduler run once across replicas: those that are added with [Cron.Add]. It is safe
// for concurrent use.
type Cron struct {
	config
	service   *tick.Service
	locker    *core.Locker
	scheduler gocron.Scheduler

	closing context.Context // ends with Close
	close   context.CancelFunc
	gate    gate.Gate // goroutines of RunNow
}

// New returns a Cron for the jobs of scheduler, whose locks are taken with locker under the name of the service: replicas
// of one service share it, others do not. The TTL of locker says how long a job stays taken after its replica died. The
// error names every fault of the options.
//
// The scheduler must have no gocron.WithDistributedElector: gocron would ask it instead. See [WithElector].
func New(locker *core.Locker, scheduler gocron.Scheduler, service string, opts ...Option) (*Cron, error) {
	c := defaults()
	var f faults.List
	faults.Apply(&f, opts, func(o Option) { o.apply(&c) })
	f.Check(scheduler == nil, "scheduler is nil")
	f.Check(c.clock == nil, "clock is nil")
	c.jobs.check(&f)
	if c.clock != nil {
		c.ticks = append(c.ticks, tick.WithClock(c.clock.Now))
	}
	for _, o := range c.jobs.policy {
		c.ticks = append(c.ticks, o)
	}
	t, err := tick.New(locker, service, c.ticks...)
	if err != nil {
		f = append(f, err)
	}
	if err := f.Err("cronlock"); err != nil {
		return nil, err
	}
	cron := &Cron{config: c, service: t, locker: locker, scheduler: scheduler}
	cron.closing, cron.close = context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	return cron, nil
}

// Add adds a job to the scheduler, whose ticks each run fn once across the replicas. Replicas know the job by its name,
// which must be the same on all of them and in all releases. The context of fn ends when the scheduler stops the job, and
// when fn must not go on: with a cause matching core.ErrLost when a lease was lost, [ErrLeadershipLost], or
// [ErrReplaced]. [FromContext] describes the run, core.FromContext has its lease.
//
// A run of the last tick before a stop time (gocron.WithStopAt) has its context until the Cron is closed: gocron removes the job
// as it begins.
//
// fn's error is what gocron gets; if a lease was lost while fn ran, it also matches core.ErrLost, even if fn returned nil.
// The error of Add names every fault of the options; a name that is empty or not valid UTF-8, or that another job
// of this Cron has, is one.
func (c *Cron) Add(name string, definition gocron.JobDefinition, fn func(ctx context.Context) error, opts ...JobOption) (*Job, error) {
	conf := jobConfig{gocron: c.jobs.gocron, gapped: c.jobs.gapped} // the service has the policies
	var f faults.List
	faults.Apply(&f, opts, func(o JobOption) { o.applyJob(&conf) })
	f.Check(definition == nil, "definition is nil")
	conf.check(&f)
	j := &Job{cron: c, options: conf.gocron, gapped: conf.gapped, handoff: make(handoff, 1), ready: make(chan struct{})}
	var err error
	j.Job, err = c.service.Add(name, fn, append(conf.policy,
		tick.WithHost(tick.Host{Run: j.run, Has: j.listed}), tick.WithSchedule(instantsOf{j}))...)
	wrong := errors.Join(f...)
	switch {
	case err != nil: // which names the job
		return nil, fmt.Errorf("cronlock: %w", errors.Join(err, wrong))
	case wrong == nil:
		wrong = j.schedule(j.options, func(task gocron.Task, opts ...gocron.JobOption) (gocron.Job, error) {
			return c.scheduler.NewJob(definition, task, opts...)
		})
	}
	if wrong == nil {
		return j, nil
	}
	j.Job.Remove()
	return nil, fmt.Errorf("cronlock: job %q: %w", name, wrong)
}

// Close ends the Cron: no run starts from now on, with core.ErrClosed as the reason, and runs of others are not followed
// any more. It waits for own runs to end; when ctx ends first, it returns its cause and the names of their jobs, and the
// runs go on under their leases until the Locker is closed. Shut the scheduler down before, and close the elector and the
// Locker after, with a deadline too.
func (c *Cron) Close(ctx context.Context) error {
	c.gate.Close()
	c.close()
	if err := c.service.Close(ctx); err != nil {
		return fmt.Errorf("cronlock: %w", err)
	}
	return c.gate.Wait(ctx) // soon: RunNow waits for runs
}

// ClockOffset returns by how much the nodes' clocks are ahead of the scheduler's. It is false before any node has
// replied: then the offset is only that of the scheduler's clock from the machine's.
func (c *Cron) ClockOffset() (time.Duration, bool) { return c.service.ClockOffset() }
