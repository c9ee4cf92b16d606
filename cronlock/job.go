package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/tick"
)

// A Job is a job that was added to a Cron.
type Job struct {
	*tick.Job
	cron    *Cron
	options []gocron.JobOption
	gapped  bool
	handoff handoff // of the scheduler's own runs

	changing sync.Mutex // held by Update and Remove
	mu       sync.Mutex
	handle   gocron.Job
	ready    chan struct{} // closed while gocron has the job as Add or Update were told, or has refused it
	ticks    ticks

	instants func(after time.Time) time.Time // nil: not known yet
	updated  time.Time                       // by the nodes' clocks: what the schedule names before was never due
}

// Each purpose for which gocron may be asked to run a job has a Locker of its own, so that the value which gocron
// calls says what the call is for.
type (
	onSchedule struct{ j *Job } // a call of gocron's own: for the latest tick that is due
	extra      struct {         // a one-time job beside the scheduled one: by hand, or a tick again
		job     *Job
		claim   func(context.Context) (*tick.Claim, error)
		handoff handoff

		asked atomic.Bool // by gocron, or it is not to be asked any more
		err   error
		over  chan struct{} // closed when it has ended, or was refused
	}
)

func (o onSchedule) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	t, err := o.j.due(ctx)
	if err != nil {
		return nil, o.j.refuse(ctx, t.At, err)
	}
	run, over := o.j.runContext(ctx, t)
	claim, err := o.j.Claim(run, t)
	if err != nil {
		over()
		return nil, err
	}
	d, err := o.j.handoff.offer(ctx, claim)
	if err != nil {
		over()
		return nil, o.j.refuse(ctx, t.At, err)
	}
	d.ended = func(error) { over() }
	return d, nil
}

// runContext is that of a run of the tick: ctx, but for the last tick before a stop time (gocron.WithStopAt). gocron removes
// the job before it runs that one, and so ends ctx.
func (j *Job) runContext(ctx context.Context, t tick.Tick) (run context.Context, over func()) {
	if !t.Next.IsZero() || traitsOf(j.options).stop.IsZero() {
		return ctx, func() {}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(j.cron.closing, cancel)
	return run, func() { stop(); cancel() }
}

// refuse says that a call of gocron's is for no tick that could be claimed.
func (j *Job) refuse(ctx context.Context, at time.Time, err error) error {
	if ctx.Err() == nil {
		j.cron.locker.Event(ctx, core.Event{Source: source, Name: j.Name(), Kind: EventRefused})
	}
	return &TickError{Job: j.Name(), Tick: at, Err: err}
}

func (x *extra) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	if x.asked.Swap(true) { // the scheduler was stopped and started before it was removed
		return nil, x.job.refuse(ctx, time.Time{}, core.ErrDone)
	}
	claim, err := x.claim(ctx)
	if err == nil {
		var d *delivery
		if d, err = x.handoff.offer(ctx, claim); err == nil {
			d.ended = x.end
			return d, nil
		}
	}
	x.end(err)
	return nil, err
}

func (x *extra) end(err error) {
	x.err = err
	close(x.over)
}

// withdraw reports false where gocron has asked already. It is refused from then on.
func (x *extra) withdraw() bool { return !x.asked.Swap(true) }

// own are the options for gocron; those of this package come last, because of several it takes the last.
func (j *Job) own(l gocron.Locker, users []gocron.JobOption) []gocron.JobOption {
	return append(slices.Clip(users),
		gocron.WithName(j.Name()), gocron.WithDistributedJobLocker(l), gocron.WithDisabledDistributedJobLocker(false))
}

// schedule has gocron schedule the job, by add.
func (j *Job) schedule(users []gocron.JobOption, add func(task gocron.Task, opts ...gocron.JobOption) (gocron.Job, error)) error {
	h, err := add(j.task(j.handoff), j.own(onSchedule{j}, users)...)
	j.mu.Lock()
	defer j.mu.Unlock()
	defer close(j.ready)
	if err == nil && h != nil { // it is nil where the scheduler is shut down meanwhile
		j.handle, j.instants, j.ticks = h, nil, ticks{}
		j.ticks.look(j.cron.clock.Now())
	}
	return err
}

// isReady returns what is closed while gocron has the job.
func (j *Job) isReady() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ready
}

// Handle returns what gocron has of the job. Its RunNow is not that of Job: it counts as the tick that it falls on.
func (j *Job) Handle() gocron.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.handle
}

// Update gives the job another schedule, from now on: what it names before is not caught up here. An error leaves the job as
// it was; one that was removed, or is over, cannot be updated. A run under way ends as it does when the job is removed: its
// context does. Where ticks are told apart by a minimum gap, that of the start before holds until it has passed.
func (j *Job) Update(definition gocron.JobDefinition) error {
	j.changing.Lock()
	defer j.changing.Unlock()
	users := withoutPast(j.options, j.cron.clock.Now())
	if err := j.check(definition, users); err != nil {
		return fmt.Errorf("cronlock: job %q: not updated: %w", j.Name(), err)
	}
	j.mu.Lock()
	j.ready, j.updated = make(chan struct{}), j.cron.service.Now()
	id := j.handle.ID()
	j.mu.Unlock()
	return j.schedule(users, func(task gocron.Task, opts ...gocron.JobOption) (gocron.Job, error) {
		return j.cron.scheduler.Update(id, definition, task, opts...)
	})
}

// check says why gocron would not update the job, by a scheduler that never starts: gocron itself removes the job before it
// looks, and adds one that it does not have.
func (j *Job) check(definition gocron.JobDefinition, users []gocron.JobOption) error {
	switch {
	case definition == nil:
		return errors.New("definition is nil")
	case !j.listed():
		return gocron.ErrJobNotFound
	}
	s, err := gocron.NewScheduler(gocron.WithClock(j.cron.clock))
	if err != nil {
		return err
	}
	_, err = s.NewJob(definition, j.task(j.handoff), j.own(onSchedule{j}, users)...)
	return errors.Join(err, s.Shutdown())
}

// Remove removes the job from the scheduler. Its name is free then.
func (j *Job) Remove() error {
	j.changing.Lock()
	defer j.changing.Unlock()
	err := j.cron.scheduler.RemoveJob(j.Handle().ID())
	j.Job.Remove()
	return err
}

// listed reports whether the scheduler has the job.
func (j *Job) listed() bool {
	select {
	case <-j.isReady():
	default:
		return true // it is being added, or updated
	}
	h := j.Handle()
	return h != nil && slices.ContainsFunc(j.cron.scheduler.Jobs(), func(l gocron.Job) bool { return l.ID() == h.ID() })
}

// RunNow has the scheduler, which must have been started, run the job on this replica, now, without a tick: under the
// lease of the job, and without record. It does not wait for the run. Why it did not run reaches AfterLockError.
func (j *Job) RunNow() error {
	if !j.cron.gate.Enter() {
		return core.ErrClosed
	}
	x, id, err := j.extra(func(ctx context.Context) (*tick.Claim, error) { return j.Claim(ctx, tick.Tick{}) })
	if err != nil {
		j.cron.gate.Leave()
		return err
	}
	go func() {
		defer j.cron.gate.Leave()
		if err := j.await(j.cron.closing, x, id); errors.Is(err, errDropped) {
			j.cron.locker.Logger().Warn("cronlock: a run by hand did not start: gocron's limit of concurrent jobs was reached", "job", j.Name())
			_ = j.refuse(j.cron.closing, time.Time{}, err)
		}
	}()
	return nil
}

// run has gocron run the job once more, and waits for the end of the run.
func (j *Job) run(ctx context.Context, claim func(context.Context) (*tick.Claim, error)) error {
	select {
	case <-j.isReady():
	case <-ctx.Done():
		return ctx.Err()
	}
	x, id, err := j.extra(claim)
	if err != nil {
		return err
	}
	return j.await(ctx, x, id)
}

// extra adds a one-time job, so that gocron's limits, listeners and shutdown hold for that run, too.
func (j *Job) extra(claim func(context.Context) (*tick.Claim, error)) (*extra, uuid.UUID, error) {
	x := &extra{job: j, claim: claim, handoff: make(handoff, 1), over: make(chan struct{})}
	id := uuid.New()
	users := withoutBounds(j.options)
	_, err := j.cron.scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), j.task(x.handoff),
		append(j.own(x, users), gocron.WithIdentifier(id))...)
	return x, id, err
}

// errDropped: gocron has not asked for the run, and will not, as when its limit of concurrent jobs is reached, in the mode
// Reschedule.
var errDropped = errors.New("gocron dropped the run")

// await waits until the run has ended, and returns why it did not start. Then it removes the one-time job, which gocron
// keeps listed for ever; not before, as it may be queued.
func (j *Job) await(ctx context.Context, x *extra, id uuid.UUID) error {
	defer func() { _ = j.cron.scheduler.RemoveJob(id) }() // it may be gone, with the scheduler
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-x.over:
			return x.err
		case <-ctx.Done():
			if x.withdraw() {
				return ctx.Err()
			}
			<-x.over // whoever closes the Cron waits for it, too
			return x.err
		case <-ticker.C:
			if j.cron.scheduler.JobsWaitingInQueue() == 0 && x.withdraw() {
				return errDropped
			}
		}
	}
}

// A handoff connects a Locker with the task that gocron runs after it. gocron calls the two one after the other, and Unlock
// after them, on one goroutine; runs of a job may do so at the same time. It has room for one: the next claim waits until
// the task has taken this one.
type handoff chan *delivery

// A delivery is a claim on its way to the task, and the gocron.Lock.
type delivery struct {
	claim *tick.Claim
	from  handoff
	taken bool
	ended func(error) // told why the function was not called
}

func (h handoff) offer(ctx context.Context, c *tick.Claim) (*delivery, error) {
	d := &delivery{claim: c, from: h}
	select {
	case h <- d:
		return d, nil
	case <-ctx.Done(): // no task has taken the one before
		c.End()
		return nil, context.Cause(ctx)
	}
}

// Unlock is called when the task has returned or panicked, or was not called because a listener said no. gocron calls it
// with a context that Shutdown has cancelled, and drops its error.
func (d *delivery) Unlock(context.Context) error {
	if !d.taken {
		<-d.from // it is there, because no other is offered before
	}
	err := d.claim.End()
	d.ended(d.claim.Err())
	return err
}

// errNotAsked: gocron runs the task without having asked the Locker.
var errNotAsked = errors.New("cronlock: the scheduler has an elector of its own, and does not ask for locks: use cronlock.WithElector instead")

// task is what gocron runs.
func (j *Job) task(from handoff) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		select {
		case d := <-from:
			d.taken = true
			return d.claim.Call()
		default:
			j.cron.locker.Logger().Error("cronlock: a job does not run", "job", j.Name(), "err", errNotAsked)
			return errNotAsked
		}
	})
}
