package cronlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
)

// source names this package in events.
const source = "cronlock"

// A Cron makes jobs of one gocron scheduler run once across replicas: those that are added with [Cron.Add]. It is safe
// for concurrent use.
type Cron struct {
	config
	locker    *core.Locker
	scheduler gocron.Scheduler
	service   string
	self      string // who runs a tick, in its record

	closing context.Context // ends with Close
	close   context.CancelFunc
	gate    gate.Gate // runs, and goroutines that follow others' runs

	mu   sync.Mutex
	jobs map[string]*Job
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
	f.Check(locker == nil, "locker is nil")
	f.Check(scheduler == nil, "scheduler is nil")
	f.Check(service == "", "the service's name is empty: it keeps the jobs of services apart that share nodes")
	c.check(&f)
	if err := f.Err("cronlock"); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	cron := &Cron{config: c, locker: locker, scheduler: scheduler, service: service, jobs: map[string]*Job{},
		self: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6])}
	cron.closing, cron.close = context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	if c.elector != nil {
		cron.gate.Go(cron.succeed)
	}
	return cron, nil
}

// Add adds a job to the scheduler, whose ticks each run fn once across the replicas. Replicas know the job by its name,
// which must be the same on all of them and in all releases. The context of fn ends when the scheduler stops the job, and
// when fn must not go on: with a cause matching core.ErrLost when a lease was lost, [ErrLeadershipLost], or
// [ErrReplaced]. [FromContext] describes the run, core.FromContext has its lease.
//
// fn's error is what gocron gets; if a lease was lost while fn ran, it also matches core.ErrLost, even if fn returned nil.
// The error of Add names every fault of the options; a name that is empty, or that another job of this Cron has, is one.
func (c *Cron) Add(name string, definition gocron.JobDefinition, fn func(ctx context.Context) error, opts ...JobOption) (*Job, error) {
	p := c.policy
	var f faults.List
	faults.Apply(&f, opts, func(o JobOption) { o.applyJob(&p) })
	f.Check(definition == nil, "definition is nil")
	f.Check(fn == nil, "the function is nil")
	f.Check(name == "", "the job's name is empty: replicas know the job by it")
	p.check(&f, c.clockLimit)
	if err := f.Err("cronlock"); err != nil {
		return nil, fmt.Errorf("job %q: %w", name, err)
	}
	j := newJob(c, name, fn, p)
	if err := c.register(j); err != nil {
		return nil, err
	}
	if err := j.schedule(func(opts ...gocron.JobOption) (gocron.Job, error) {
		return c.scheduler.NewJob(definition, gocron.NewTask(j.scheduled.run), opts...)
	}); err != nil {
		c.forget(j)
		return nil, fmt.Errorf("cronlock: job %q: %w", name, err)
	}
	return j, nil
}

// register takes the name of a job, which may be that of one that the scheduler does not have any more.
func (c *Cron) register(j *Job) error {
	c.mu.Lock()
	before := c.jobs[j.name]
	if before == nil {
		c.jobs[j.name] = j
	}
	c.mu.Unlock()
	switch {
	case before == nil:
		return nil
	case before.listed():
		return fmt.Errorf("cronlock: job %q: another job has this name, and both would count as one", j.name)
	}
	c.forget(before)
	return c.register(j)
}

func (c *Cron) forget(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[j.name] == j {
		delete(c.jobs, j.name)
	}
}

// all returns the jobs known.
func (c *Cron) all() []*Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs := make([]*Job, 0, len(c.jobs))
	for _, j := range c.jobs {
		jobs = append(jobs, j)
	}
	return jobs
}

// Close ends the Cron: no run starts from now on, with core.ErrClosed as the reason, and runs of others are not followed
// any more. It waits for own runs to end; when ctx ends first, it returns its cause, and the runs go on under their
// leases. Shut the scheduler down before, and close the elector and the Locker after.
func (c *Cron) Close(ctx context.Context) error {
	c.gate.Close()
	c.close()
	return wait(ctx, c.gate.Empty(), "runs are still under way")
}

// enter lets a run in, and into the term in which this process leads, if it must. The context also ends with the term.
// Whoever gets no error owes a call of leave.
func (c *Cron) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if !c.gate.Enter() {
		return nil, nil, core.ErrClosed
	}
	if c.elector == nil {
		return ctx, c.gate.Leave, nil
	}
	ctx, depart, err := c.elector.Enter(ctx)
	if err != nil {
		c.gate.Leave()
		return nil, nil, err
	}
	return ctx, func() { depart(); c.gate.Leave() }, nil
}

// ClockOffset returns by how much the nodes' clocks are ahead of the scheduler's. It is false before any node has
// replied: then the offset is only that of the scheduler's clock from the machine's.
func (c *Cron) ClockOffset() (time.Duration, bool) {
	ahead, ok := c.locker.ClockOffset()
	return ahead + time.Now().Round(0).Sub(c.clock.Now().Round(0)), ok // wall clocks: a clock may have no other
}

// now returns the time by the nodes' clocks, as far as they are known.
func (c *Cron) now() time.Time {
	ahead, _ := c.ClockOffset()
	return c.clock.Now().Add(ahead)
}

// wait waits until done is closed; where ctx ends before, the error says what is missing.
func wait(ctx context.Context, done <-chan struct{}, missing string) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cronlock: %s: %w", missing, context.Cause(ctx))
	}
}

// pause reports false when ctx has ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
