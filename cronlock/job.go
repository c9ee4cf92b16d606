package cronlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
)

// A Job is a job that was added to a Cron.
type Job struct {
	cron   *Cron
	name   string
	fn     func(context.Context) error
	policy policy

	scheduled *call         // of the scheduler's own runs
	turn      chan struct{} // room for one: runs again follow each other, unless they may overlap

	mu       sync.Mutex
	handle   gocron.Job
	ready    chan struct{} // closed once there is a handle
	ticks    ticks
	running  map[*run]struct{}
	followed map[string]struct{} // ticks whose holders are followed
	left     map[string]tick     // ticks that are left to the leader
}

func newJob(c *Cron, name string, fn func(context.Context) error, p policy) *Job {
	j := &Job{cron: c, name: name, fn: fn, policy: p, turn: make(chan struct{}, 1), ready: make(chan struct{}),
		running: map[*run]struct{}{}, followed: map[string]struct{}{}, left: map[string]tick{}}
	j.scheduled = newCall(j, j.follow)
	j.ticks.look(c.clock.Now())
	return j
}

// Each purpose for which gocron may be asked to run a job has a Locker of its own, so that the value which gocron
// calls says what the call is for.
type (
	onSchedule struct{ j *Job } // a call of gocron's own: for the latest tick that is due
	extra      struct {         // a one-time job beside the scheduled one: by hand, or a tick again
		*call
		tick tick

		mu    sync.Mutex
		asked bool // by gocron
		gone  bool // it is not to be asked any more
		err   error
		over  chan struct{} // closed when it has ended, or was refused
	}
)

func (o onSchedule) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	t, err := o.j.due(ctx)
	return o.j.start(ctx, t, o.j.scheduled, err)
}

func (x *extra) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	x.mu.Lock()
	var err error
	if x.asked || x.gone { // the scheduler was stopped and started before it was removed
		err = core.ErrDone
	}
	x.asked = true
	x.mu.Unlock()
	if err != nil {
		return nil, &TickError{Job: x.job.name, Tick: x.tick.at, Err: err}
	}
	return x.job.start(ctx, x.tick, x.call, nil)
}

// withdraw reports false where gocron has asked already. It is refused from then on.
func (x *extra) withdraw() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone = !x.asked
	return x.gone
}

// own are the options that gocron gets last, because of several it takes the last.
func (j *Job) own(l gocron.Locker) []gocron.JobOption {
	return []gocron.JobOption{gocron.WithName(j.name), gocron.WithDistributedJobLocker(l), gocron.WithDisabledDistributedJobLocker(false)}
}

// schedule has gocron schedule the job, by add.
func (j *Job) schedule(add func(opts ...gocron.JobOption) (gocron.Job, error)) error {
	h, err := add(append(j.policy.gocron[:len(j.policy.gocron):len(j.policy.gocron)], j.own(onSchedule{j})...)...)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.handle == nil {
		close(j.ready)
	}
	j.handle = h
	return nil
}

// Name returns the job's name.
func (j *Job) Name() string { return j.name }

// Handle returns what gocron has of the job. Its RunNow is not that of Job: it counts as the tick that it falls on.
func (j *Job) Handle() gocron.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.handle
}

// Update gives the job another schedule. A run under way ends as it does when the job is removed: its context does.
func (j *Job) Update(definition gocron.JobDefinition) error {
	j.mu.Lock()
	j.ticks = ticks{}
	j.ticks.look(j.cron.clock.Now())
	id := j.handle.ID()
	j.mu.Unlock()
	return j.schedule(func(opts ...gocron.JobOption) (gocron.Job, error) {
		return j.cron.scheduler.Update(id, definition, gocron.NewTask(j.scheduled.run), opts...)
	})
}

// Remove removes the job from the scheduler. Its name is free then.
func (j *Job) Remove() error {
	err := j.cron.scheduler.RemoveJob(j.Handle().ID())
	j.cron.forget(j)
	return err
}

// listed reports whether the scheduler has the job.
func (j *Job) listed() bool {
	h := j.Handle()
	if h == nil {
		return true // it is being added
	}
	for _, l := range j.cron.scheduler.Jobs() {
		if l.ID() == h.ID() {
			return true
		}
	}
	return false
}

// RunNow has the scheduler, which must have been started, run the job on this replica, now, without a tick: under the
// lease of the job, and without record. It does not wait for the run. Why it did not run reaches AfterLockError.
func (j *Job) RunNow() error {
	if !j.cron.gate.Enter() {
		return core.ErrClosed
	}
	x, id, err := j.extra(tick{})
	if err != nil {
		j.cron.gate.Leave()
		return err
	}
	go func() {
		defer j.cron.gate.Leave()
		x.await(j.cron.closing)
		j.discard(id)
	}()
	return nil
}

// extra has gocron run the job once more, so that its limits, listeners and shutdown hold for that run, too.
func (j *Job) extra(t tick) (*extra, uuid.UUID, error) {
	x := &extra{tick: t, over: make(chan struct{})}
	x.call = newCall(j, func(_ *run, err error) {
		x.err = err
		close(x.over)
	})
	id := uuid.New()
	opts := append(j.policy.gocron[:len(j.policy.gocron):len(j.policy.gocron)], j.own(x)...)
	_, err := j.cron.scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(x.run),
		append(opts, gocron.WithIdentifier(id))...)
	return x, id, err
}

// errDropped: gocron has not asked for the run, and will not, as when its limit of concurrent jobs is reached, in the mode
// Reschedule.
var errDropped = errors.New("gocron dropped the run")

// await waits until the run has ended, and returns why it did not start.
func (x *extra) await(ctx context.Context) error {
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
			if x.job.cron.scheduler.JobsWaitingInQueue() == 0 && x.withdraw() {
				return errDropped
			}
		}
	}
}

// discard removes a one-time job, which gocron keeps listed for ever. Not before it is over: it may be queued.
func (j *Job) discard(id uuid.UUID) {
	_ = j.cron.scheduler.RemoveJob(id) // it may be gone, with the scheduler
}

// A call connects a Locker with the task that gocron runs after it. gocron calls the two one after the other, and Unlock
// after them, on one goroutine; runs of a job may do so at the same time.
type call struct {
	job     *Job
	handoff chan *run               // room for one: the next run waits until the task has taken this one
	ended   func(r *run, err error) // told of the end of each run, or why it did not start
}

func newCall(j *Job, ended func(*run, error)) *call {
	return &call{j, make(chan *run, 1), ended}
}

// errNotAsked: gocron runs the task without having asked the Locker.
var errNotAsked = errors.New("cronlock: the scheduler has an elector of its own, and does not ask for locks: use cronlock.WithElector instead")

// run is the task.
func (c *call) run(ctx context.Context) error {
	select {
	case r := <-c.handoff:
		return r.call()
	default:
		c.job.cron.locker.Logger().Error("cronlock: a job does not run", "job", c.job.name, "err", errNotAsked)
		return errNotAsked
	}
}
