package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Job is a job of a [cronlock.Service] that a gocron scheduler runs. It is safe for concurrent use.
type Job struct {
	*cronlock.Job
	scheduler gocron.Scheduler
	handle    gocron.Job
	options   []gocron.JobOption // of every call
	tag       string             // of every call

	mu   sync.Mutex
	late uuid.UUID // the last call of the engine, as gocron knows it
}

// An Option configures a job.
type Option func(*config)

type config struct {
	policy []cronlock.JobOption
	gocron []gocron.JobOption
	tags   []string
}

// Policy sets options of the [cronlock.Job], except WithHost: the host is the scheduler.
func Policy(opts ...cronlock.JobOption) Option {
	return func(c *config) { c.policy = append(c.policy, opts...) }
}

// Listeners adds event listeners of gocron. They are called for every run, including those that start late or by hand. A
// BeforeJobRunsSkipIfBeforeFuncErrors that returns an error leaves the tick to another replica.
func Listeners(listeners ...gocron.EventListener) Option {
	return func(c *config) { c.gocron = append(c.gocron, gocron.WithEventListeners(listeners...)) }
}

// Tags adds tags of gocron. The job has one more, of its own.
func Tags(tags ...string) Option { return func(c *config) { c.tags = append(c.tags, tags...) } }

// Add adds a job to the service and makes the scheduler run the job once the scheduler has been started. The errors are
// those of [cronlock.Service.Add] and of gocron's NewJob, or core.ErrClosed if the scheduler is shut down; then nothing is
// added.
//
// Only schedule says when the job runs: gocron's options on start and stop times, intervals, singleton mode and limits of
// runs are not for such jobs. The scheduler's limit of concurrent jobs may delay runs; in LimitModeReschedule it may drop
// runs by hand. A scheduler with an elector of its own does not run such jobs: give the elector to cronlock.New
// ([cronlock.WithElector]).
func Add(scheduler gocron.Scheduler, service *cronlock.Service, name string, schedule cronlock.Schedule, fn func(ctx context.Context) error, opts ...Option) (*Job, error) {
	var c config
	var f faults.List
	faults.Set(&f, &c, opts)
	f.Check(scheduler == nil, "the scheduler is nil")
	f.Check(service == nil, "the service is nil")
	if err := f.Err(fmt.Sprintf("gocronlock: job %q", name)); err != nil {
		return nil, err
	}
	j := &Job{scheduler: scheduler, tag: uuid.NewString()}
	added := make(chan struct{}) // closed when j is complete
	defer close(added)
	host := cronlock.WithHost(func() {
		if <-added; j.handle != nil {
			j.callLate()
		}
	})
	var err error
	if j.Job, err = service.Add(name, schedule, fn, append(c.policy, host)...); err != nil {
		return nil, err
	}
	j.options = append(slices.Clone(c.gocron), gocron.WithName(name), gocron.WithTags(append(c.tags, j.tag)...), gocron.WithDisabledDistributedJobLocker(false))
	r := &runs{j.Job.Claim, func() {}, make(chan *run, 1)}
	j.handle, err = scheduler.NewJob(gocron.CronJob(name, false), gocron.NewTask(r.task),
		slices.Concat(j.options, []gocron.JobOption{gocron.WithCronImplementation(instants{schedule}), gocron.WithDistributedJobLocker(r)})...)
	if err = j.made(err); err != nil {
		j.Job.Remove()
		return nil, fmt.Errorf("gocronlock: job %q: %w", name, err)
	}
	return j, nil
}

// made returns what NewJob has failed with. Of a scheduler that is shut down it does not say so.
func (j *Job) made(err error) error {
	if err == nil {
		if _, gone := j.handle.NextRun(); gone != nil {
			err = fmt.Errorf("%w: the scheduler is shut down, or the job was removed", core.ErrClosed)
		}
	}
	return err
}

// RunNow makes the scheduler run the job by hand on this replica, see [cronlock.Job.RunNow], and does not wait for it. If
// the scheduler has not been started, the run begins when it is. Listeners hear how the run ends, and why it does not
// begin. The error is gocron's, or core.ErrClosed if the scheduler is shut down or the job was removed.
func (j *Job) RunNow() error { return j.call(uuid.New(), j.Job.ClaimNow) }

// Handle returns the job as gocron knows it, for its tags and next runs. RunNow of the handle does not run the job by hand:
// like any other call, it looks for a due tick. If it is called before the scheduler is started, or after StopJobs, it
// blocks the scheduler for ever.
func (j *Job) Handle() gocron.Job { return j.handle }

// Remove removes the job from the scheduler and from its service. gocron ends the context of a run under way, also of one
// that started late or by hand.
func (j *Job) Remove() error {
	j.Job.Remove() // first, or the engine would call once more
	err := j.scheduler.RemoveJob(j.handle.ID())
	j.scheduler.RemoveByTags(j.tag)
	return err
}

// callLate has the scheduler call at another time than a tick's. What became of the call before, which gocron may have
// dropped, nobody waits for any more.
func (j *Job) callLate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.scheduler.RemoveJob(j.late)
	j.late = uuid.New()
	_ = j.call(j.late, j.Job.Claim) // the engine calls again
}

// call makes the scheduler run what claim takes, by a job of its own that runs once: RunNow of a job whose scheduler does
// not run blocks gocron's loop for ever.
func (j *Job) call(id uuid.UUID, claim claimFunc) error {
	// gocron keeps jobs that will not run again. StopJobs waits for the run, and RemoveJob for StopJobs.
	r := &runs{claim, func() { go func() { _ = j.scheduler.RemoveJob(id) }() }, make(chan *run, 1)}
	_, err := j.scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(r.task),
		append(slices.Clone(j.options), gocron.WithIdentifier(id), gocron.WithDistributedJobLocker(r))...)
	return j.made(err)
}

// instants is the schedule as gocron asks for it.
type instants struct{ cronlock.Schedule }

func (instants) IsValid(string, *time.Location, time.Time) error { return nil }

// Next is never zero: gocron would loop.
func (i instants) Next(after time.Time) time.Time {
	if next := i.Schedule.Next(after); !next.IsZero() {
		return next
	}
	return after.AddDate(200, 0, 0)
}

type claimFunc func(ctx context.Context) (*cronlock.Claim, error)

// runs connects what gocron calls one after the other on one goroutine: Lock, the task unless a listener refuses it, and
// Unlock. A claim holds the lease of the job, so there is one at a time.
type runs struct {
	claim   claimFunc
	over    func()    // called after each
	claimed chan *run // room for one
}

type run struct {
	*cronlock.Claim
	all    *runs
	called bool
}

// Lock takes what is to start: the records say what that is, not the call.
func (r *runs) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	claim, err := r.claim(ctx)
	if err != nil {
		r.over()
		return nil, err
	}
	this := &run{Claim: claim, all: r}
	r.claimed <- this
	return this, nil
}

func (r *run) Unlock(context.Context) error {
	if !r.called {
		<-r.all.claimed
	}
	defer r.all.over()
	return r.End()
}

var errNotAsked = errors.New("gocronlock: the scheduler has an elector of its own and asks for no lock: give the elector to cronlock.New (WithElector)")

func (r *runs) task(context.Context) error {
	select {
	case this := <-r.claimed:
		this.called = true
		return this.Call()
	default:
		return errNotAsked
	}
}
