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
	"github.com/lockkit/lockkit/cronlock/internal/hosting"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Job is a job of a [cronlock.Service] that a gocron scheduler runs. It is safe for concurrent use.
type Job struct {
	*cronlock.Job
	scheduler   gocron.Scheduler
	listed      gocron.Job         // as gocron lists it
	callOptions []gocron.JobOption // of every call
	tag         string             // of every call

	dueCalls    *calls // for what is due
	manualCalls *calls
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
// The scheduler lists the job by its name and tags, and beside it each call that waits or runs. A job that is removed there
// (RemoveJob, RemoveByTags) starts no more runs and leaves the service, as does each job of a scheduler that is shut down; to
// remove a call that waits removes the job, and to remove one that runs ends the context of the run. gocron does not show the
// next tick; that is what Next of the job is for.
//
// Only schedule says when the job runs: gocron's options on start and stop times, intervals, singleton mode and limits of
// runs are not for such jobs. The scheduler's limit of concurrent jobs delays runs. In LimitModeReschedule it drops runs by
// hand, and delays others by five seconds at a time. A scheduler with an elector of its own does not run such jobs: give the
// elector to cronlock.New ([cronlock.WithElector]).
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
	j.callOptions = append(slices.Clone(c.gocron), gocron.WithName(name), gocron.WithTags(append(c.tags, j.tag)...), gocron.WithDisabledDistributedJobLocker(false))
	j.dueCalls, j.manualCalls = &calls{job: j}, &calls{job: j, byHand: true}
	h := &host{added: make(chan struct{})}
	var err error
	j.Job, err = service.Add(name, schedule, fn, append(c.policy, hosting.WithHost(h).(cronlock.JobOption))...)
	if err != nil {
		return nil, err
	}
	defer close(h.added)
	listed := func(context.Context) error { return j.RunNow() } // RunNow of the job that gocron lists
	j.listed, err = scheduler.NewJob(gocron.CronJob(name, false), gocron.NewTask(listed),
		gocron.WithName(name), gocron.WithTags(append(c.tags, j.tag)...), gocron.WithCronImplementation(neverSchedule{}))
	if err == nil && j.isMissing(j.listed) {
		err = errGone
	}
	if err != nil {
		j.Job.Remove()
		return nil, fmt.Errorf("gocronlock: job %q: %w", name, err)
	}
	h.job = j
	return j, nil
}

var errGone = fmt.Errorf("%w: the scheduler is shut down, or the job was removed", core.ErrClosed)

// gone reports whether the user has removed the job from the scheduler, or shut that down, of which gocron tells nobody.
func (j *Job) isGone() bool {
	return j.isMissing(j.listed) || j.dueCalls.isPendingRemoved() || j.manualCalls.isPendingRemoved()
}

// lacks reports whether the scheduler does not have a job any more. While it stops, gocron knows of no job for a moment, but
// lists all.
func (j *Job) isMissing(one gocron.Job) bool {
	if _, err := one.NextRun(); err == nil {
		return false
	}
	return !slices.ContainsFunc(j.scheduler.Jobs(), func(listed gocron.Job) bool { return listed.ID() == one.ID() })
}

// A host is a job before it is complete, and afterwards.
type host struct {
	added chan struct{} // closed by the end of Add
	job   *Job          // nil: it was not added
}

// Ask makes the scheduler call for what is due.
func (h *host) RequestCall() {
	<-h.added
	if h.job != nil {
		_ = h.job.dueCalls.request() // the engine asks again
	}
}

// Gone also removes calls that the scheduler has dropped.
func (h *host) IsRemoved() bool {
	select {
	case <-h.added:
	default:
		return false
	}
	if h.job == nil {
		return true
	}
	if h.job.isGone() {
		_ = h.job.Remove() // what is left of it in the scheduler
		return true
	}
	h.job.manualCalls.removeDropped()
	return false
}

// RunNow makes the scheduler run the job by hand on this replica, see [cronlock.Job.RunNow], and does not wait for it. If
// the scheduler has not been started, the run begins when it is. Listeners hear how the run ends, and why it does not
// begin. If a run by hand of this job still waits for the scheduler, RunNow adds no second one. The error is gocron's, or
// core.ErrClosed if the scheduler is shut down or the job was removed.
func (j *Job) RunNow() error {
	err := j.manualCalls.request()
	if errors.Is(err, core.ErrClosed) {
		_ = j.Remove()
	}
	return err
}

// Remove removes the job from the scheduler and from its service. gocron ends the context of a run under way, also of one
// that started late or by hand.
func (j *Job) Remove() error {
	j.Job.Remove() // first, or the engine would call once more
	err := j.scheduler.RemoveJob(j.listed.ID())
	j.scheduler.RemoveByTags(j.tag)
	return err
}

// never is when gocron runs the job that it lists: the engine asks for each call, one at a time. With calls of its own at the
// ticks, a scheduler that is busy would queue one for each tick.
type neverSchedule struct{}

func (neverSchedule) IsValid(string, *time.Location, time.Time) error { return nil }
func (neverSchedule) Next(now time.Time) time.Time                    { return now.AddDate(200, 0, 0) }

// calls are those that the scheduler makes for a job, each by a job of gocron that runs once: RunNow of a job whose scheduler
// does not run blocks gocron's loop for ever. At most one of them waits for the scheduler.
type calls struct {
	job       *Job
	byHand    bool
	requestMu sync.Mutex // of one request to the scheduler at a time

	mu          sync.Mutex // never held while the scheduler is asked, which may wait for a run
	pending     gocron.Job // the call that has not come yet; nil if there is none
	pendingID   uuid.UUID  // and how the scheduler knows it
	requestedAt time.Time
}

// lostAfter is how long after its request a call that the scheduler has not queued counts as dropped.
const queueTimeout = 5 * time.Second

// call makes the scheduler call, unless a call still waits for it.
func (c *calls) request() error {
	c.requestMu.Lock()
	defer c.requestMu.Unlock()
	if c.job.isGone() {
		return errGone
	}
	if c.isPending() {
		return nil
	}
	c.removePending()
	t := &call{calls: c, id: uuid.New(), runs: make(chan *run, 1)}
	c.setPending(t.id, nil)
	added, err := c.job.scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(t.runTask),
		append(slices.Clone(c.job.callOptions), gocron.WithIdentifier(t.id), gocron.WithDistributedJobLocker(t))...)
	if err != nil {
		c.clearPending(t.id)
		return err
	}
	c.setPending(t.id, added)
	return nil
}

// sweep removes a call that the scheduler has dropped instead of queueing it: gocron keeps jobs that will not run again.
func (c *calls) removeDropped() {
	c.requestMu.Lock()
	defer c.requestMu.Unlock()
	if !c.isPending() {
		c.removePending()
	}
}

// isWaiting reports whether a call still waits for the scheduler: it was only just asked for, the scheduler has not been
// started, or it has a queue. A scheduler does not say whether it has dropped a call.
func (c *calls) isPending() bool {
	c.mu.Lock()
	waiting, since := c.pending, c.requestedAt
	c.mu.Unlock()
	if waiting == nil {
		return false
	}
	if time.Since(since) < queueTimeout || c.job.scheduler.JobsWaitingInQueue() > 0 {
		return true
	}
	next, err := waiting.NextRun()
	return err == nil && next.IsZero()
}

// removed reports whether the user has removed the call that waits. gocron lists it by the name of the job.
func (c *calls) isPendingRemoved() bool {
	c.mu.Lock()
	waiting, id := c.pending, c.pendingID
	c.mu.Unlock()
	if waiting == nil || !c.job.isMissing(waiting) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pendingID == id // it has not come meanwhile
}

// drop removes the call that has not come.
func (c *calls) removePending() {
	c.mu.Lock()
	id := c.pendingID
	c.pending, c.pendingID = nil, uuid.Nil
	c.mu.Unlock()
	if id != uuid.Nil {
		_ = c.job.scheduler.RemoveJob(id)
	}
}

// waits notes a call that has been asked for, unless it has come already.
func (c *calls) setPending(id uuid.UUID, added gocron.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if added == nil {
		c.pendingID, c.requestedAt = id, time.Now()
	} else if c.pendingID == id {
		c.pending = added
	}
}

// comes notes that a call has come.
func (c *calls) clearPending(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pendingID == id {
		c.pending, c.pendingID = nil, uuid.Nil
	}
}

// A turn connects what gocron calls one after the other on one goroutine: Lock, the task unless a listener refuses it, and
// Unlock.
type call struct {
	calls *calls
	id    uuid.UUID
	runs  chan *run // room for one
}

type run struct {
	hosting.Claim
	call         *call
	isTaskCalled bool
}

// Lock takes what is to start: the records say what that is, not the call.
func (t *call) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	t.calls.clearPending(t.id)
	claim, err := t.newClaim(ctx)
	if err != nil {
		t.remove()
		return nil, err
	}
	r := &run{Claim: claim, call: t}
	t.runs <- r
	return r, nil
}

// claim takes what is to start, unless the job was removed from the scheduler while the call waited.
func (t *call) newClaim(ctx context.Context) (hosting.Claim, error) {
	if !t.isListed() {
		return nil, errGone
	}
	return hosting.NewClaim(ctx, t.calls.job.Job, t.calls.byHand)
}

// wanted reports whether the scheduler says that it has the job. One that stops does not say so, but then the call is not
// wanted either; whether the job is gone for good, the engine finds out.
func (t *call) isListed() bool {
	_, err := t.calls.job.listed.NextRun()
	return err == nil
}

// over removes the job of a call: gocron keeps jobs that will not run again. StopJobs waits for the run, and RemoveJob for
// StopJobs.
func (t *call) remove() { go func() { _ = t.calls.job.scheduler.RemoveJob(t.id) }() }

func (r *run) Unlock(context.Context) error {
	if !r.isTaskCalled {
		<-r.call.runs
	}
	defer r.call.remove()
	return r.End()
}

var errNoLock = errors.New("gocronlock: the scheduler has an elector of its own and asks for no lock: give the elector to cronlock.New (WithElector)")

func (t *call) runTask(context.Context) error {
	select {
	case r := <-t.runs:
		r.isTaskCalled = true
		if !t.isListed() { // listeners may have taken their time
			return errGone
		}
		return r.Call()
	default:
		t.calls.clearPending(t.id)
		t.remove()
		return errNoLock
	}
}
