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
	listed      gocron.Job         // the job that gocron lists; it never runs on its own
	callOptions []gocron.JobOption // options of each call
	tag         string             // identifies the listed job and all calls

	dueCalls    *requester // requested by the engine, for due ticks
	manualCalls *requester // requested by RunNow
}

// An Option configures a job.
type Option func(*config)

// A config has the settings of a job.
type config struct {
	policy []cronlock.JobOption
	gocron []gocron.JobOption
	tags   []string
}

// Policy sets options of the [cronlock.Job], except WithHost: the host is the scheduler.
func Policy(opts ...cronlock.JobOption) Option {
	return func(c *config) { c.policy = append(c.policy, opts...) }
}

// Listeners adds event listeners of gocron. They are called for every run, including those that start late or by hand.
// A BeforeJobRunsSkipIfBeforeFuncErrors that returns an error leaves the tick to another replica.
func Listeners(listeners ...gocron.EventListener) Option {
	return func(c *config) { c.gocron = append(c.gocron, gocron.WithEventListeners(listeners...)) }
}

// Tags adds tags of gocron. The job has one more tag, with a random name.
func Tags(tags ...string) Option { return func(c *config) { c.tags = append(c.tags, tags...) } }

// Add adds a job to the service and makes the scheduler run the job once the scheduler has been started. The errors are
// those of [cronlock.Service.Add] and of gocron's NewJob, or core.ErrClosed if the scheduler is shut down; then nothing
// is added.
//
// The scheduler lists the job by its name and tags, and beside it each call that waits or runs. A job that is removed
// from the scheduler (RemoveJob, RemoveByTags) starts no more runs and leaves the service, as does each job of a
// scheduler that is shut down. Removing a call that waits removes the job. Removing a call that runs ends the context
// of the run. gocron does not show the next tick: call Next of the job.
//
// Only schedule determines when the job runs. gocron's options for start and stop times, intervals, singleton mode and
// limits of runs do not apply. The scheduler's limit of concurrent jobs delays runs. In LimitModeReschedule it drops
// runs by hand, and delays others by five seconds at a time. A scheduler with its own elector does not run such jobs:
// pass the elector to cronlock.New ([cronlock.WithElector]).
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
	j.callOptions = append(
		slices.Clone(c.gocron),
		gocron.WithName(name),
		gocron.WithTags(append(c.tags, j.tag)...),
		gocron.WithDisabledDistributedJobLocker(false),
	)
	j.dueCalls = &requester{job: j}
	j.manualCalls = &requester{job: j, byHand: true}

	// The engine may use the host before Add has returned, so the host waits for the end of Add.
	h := &host{added: make(chan struct{})}
	var err error
	j.Job, err = service.Add(name, schedule, fn, append(c.policy, hosting.WithHost(h).(cronlock.JobOption))...)
	if err != nil {
		return nil, err
	}
	defer close(h.added)

	// gocron calls the task only if the user calls RunNow of the listed job.
	task := func(context.Context) error { return j.RunNow() }
	j.listed, err = scheduler.NewJob(
		gocron.CronJob(name, false),
		gocron.NewTask(task),
		gocron.WithName(name),
		gocron.WithTags(append(c.tags, j.tag)...),
		gocron.WithCronImplementation(neverSchedule{}),
	)
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

// isGone reports whether the user has removed the job from the scheduler, or shut the scheduler down. gocron does not
// report either event.
func (j *Job) isGone() bool {
	return j.isMissing(j.listed) || j.dueCalls.isPendingRemoved() || j.manualCalls.isPendingRemoved()
}

// isMissing reports whether the scheduler does not have a job any more. While a scheduler stops, NextRun fails for a
// moment although Jobs lists the job.
func (j *Job) isMissing(wanted gocron.Job) bool {
	if _, err := wanted.NextRun(); err == nil {
		return false
	}
	return !slices.ContainsFunc(j.scheduler.Jobs(), func(listed gocron.Job) bool { return listed.ID() == wanted.ID() })
}

// A host connects the engine to a job, also while Add has not returned.
type host struct {
	added chan struct{} // closed at the end of Add
	job   *Job          // set before added is closed; nil if Add failed
}

// RequestCall makes the scheduler call the job for a due tick, once the job has been added.
func (h *host) RequestCall() {
	<-h.added
	if h.job != nil {
		// After an error the engine requests the call again.
		_ = h.job.dueCalls.request()
	}
}

// IsRemoved reports whether the job has been removed from the scheduler. It also removes the rest of such a job, and
// calls that the scheduler has dropped.
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
		_ = h.job.Remove()
		return true
	}
	h.job.manualCalls.removeDropped()
	return false
}

// RunNow makes the scheduler run the job by hand on this replica, see [cronlock.Job.RunNow], and does not wait for the
// run. If the scheduler has not been started, the run begins when it is started. Listeners get the result of the run,
// or the reason for which it does not begin. If a run by hand of this job still waits for the scheduler, RunNow adds no
// second run. The error is gocron's, or core.ErrClosed if the scheduler is shut down or the job was removed.
func (j *Job) RunNow() error {
	err := j.manualCalls.request()
	if errors.Is(err, core.ErrClosed) {
		_ = j.Remove()
	}
	return err
}

// Remove removes the job from the scheduler and from its service. gocron ends the context of a run under way, even if
// the run started late or by hand.
func (j *Job) Remove() error {
	// The service comes first, because the engine would request another call.
	j.Job.Remove()
	err := j.scheduler.RemoveJob(j.listed.ID())
	j.scheduler.RemoveByTags(j.tag)
	return err
}

// neverSchedule is the schedule of the listed job: far in the future, because the engine requests each call. If gocron
// also called the job at its ticks, a busy scheduler would queue one call for each tick.
type neverSchedule struct{}

func (neverSchedule) IsValid(string, *time.Location, time.Time) error { return nil }
func (neverSchedule) Next(now time.Time) time.Time                    { return now.AddDate(200, 0, 0) }

// A requester makes the scheduler call a job. Each call is a gocron job that runs once, because RunNow of a gocron job
// blocks gocron's loop forever if the scheduler does not run. At most one call waits for the scheduler.
type requester struct {
	job       *Job
	byHand    bool
	requestMu sync.Mutex // held during a request, so that there is one at a time

	// mu guards the fields below. It is never held during a call of the scheduler, which may wait for a run.
	mu          sync.Mutex
	pending     gocron.Job // the gocron job of the call that has not come yet; nil if there is none
	pendingID   uuid.UUID  // id of that job, set before the job is created
	requestedAt time.Time
}

// queueTimeout is how long after its request a call counts as dropped if the scheduler has no queue.
const queueTimeout = 5 * time.Second

// request requests a call from the scheduler, unless a call is still pending.
func (r *requester) request() error {
	r.requestMu.Lock()
	defer r.requestMu.Unlock()

	if r.job.isGone() {
		return errGone
	}
	if r.isPending() {
		return nil
	}
	r.removePending()

	// The id is pending before the job exists, because the call may come before NewJob returns.
	one := &call{requester: r, id: uuid.New(), runs: make(chan *run, 1)}
	r.setPendingID(one.id)
	added, err := r.job.scheduler.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(one.runTask),
		append(
			slices.Clone(r.job.callOptions),
			gocron.WithIdentifier(one.id),
			gocron.WithDistributedJobLocker(one),
		)...,
	)
	if err != nil {
		r.clearPending(one.id)
		return err
	}
	r.setPendingJob(one.id, added)
	return nil
}

// removeDropped removes a call that the scheduler has dropped: gocron keeps jobs that will not run again.
func (r *requester) removeDropped() {
	r.requestMu.Lock()
	defer r.requestMu.Unlock()
	if !r.isPending() {
		r.removePending()
	}
}

// isPending reports whether a call still waits for the scheduler: it was requested a moment ago, the scheduler has a
// queue, or the scheduler has not been started. A scheduler does not report whether it has dropped a call.
func (r *requester) isPending() bool {
	r.mu.Lock()
	pending, requestedAt := r.pending, r.requestedAt
	r.mu.Unlock()
	if pending == nil {
		return false
	}

	isRecent := time.Since(requestedAt) < queueTimeout
	if isRecent || r.job.scheduler.JobsWaitingInQueue() > 0 {
		return true
	}
	// Until the scheduler is started, it has the job, and no time for its next run.
	next, err := pending.NextRun()
	return err == nil && next.IsZero()
}

// isPendingRemoved reports whether the user has removed the pending call. gocron lists the call by the name of the job.
func (r *requester) isPendingRemoved() bool {
	r.mu.Lock()
	pending, id := r.pending, r.pendingID
	r.mu.Unlock()
	if pending == nil || !r.job.isMissing(pending) {
		return false
	}

	// The call may have come since.
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pendingID == id
}

// removePending removes the pending call from the scheduler, if there is one.
func (r *requester) removePending() {
	r.mu.Lock()
	id := r.pendingID
	r.pending = nil
	r.pendingID = uuid.Nil
	r.mu.Unlock()

	if id != uuid.Nil {
		_ = r.job.scheduler.RemoveJob(id)
	}
}

// setPendingID stores the id of a call that is about to be requested.
func (r *requester) setPendingID(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pendingID = id
	r.requestedAt = time.Now()
}

// setPendingJob stores the gocron job of a call, unless the call has come already.
func (r *requester) setPendingJob(id uuid.UUID, added gocron.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pendingID == id {
		r.pending = added
	}
}

// clearPending marks the call with an id as not pending any more: it has come, or it was not created.
func (r *requester) clearPending(id uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pendingID == id {
		r.pending = nil
		r.pendingID = uuid.Nil
	}
}

// A call is one call of a job by gocron. On one goroutine gocron calls Lock, then the task unless a listener refuses
// it, and then Unlock.
type call struct {
	requester *requester
	id        uuid.UUID // id of the gocron job
	runs      chan *run // passes the run from Lock to the task, or to Unlock if there was no task; capacity 1
}

// A run is the gocron.Lock of a call.
type run struct {
	hosting.Claim
	call         *call
	isTaskCalled bool
}

// Lock claims a run. The records determine the tick, not the call.
func (c *call) Lock(ctx context.Context, _ string) (gocron.Lock, error) {
	c.requester.clearPending(c.id)

	claim, err := c.newClaim(ctx)
	if err != nil {
		c.remove()
		return nil, err
	}

	r := &run{Claim: claim, call: c}
	c.runs <- r
	return r, nil
}

// newClaim claims a run, unless the job was removed from the scheduler while the call waited.
func (c *call) newClaim(ctx context.Context) (hosting.Claim, error) {
	if !c.isListed() {
		return nil, errGone
	}
	return hosting.NewClaim(ctx, c.requester.job.Job, c.requester.byHand)
}

// isListed reports whether the scheduler has the job. For a scheduler that is stopping it is false, and the call is
// unwanted in that case, too. The engine finds out whether the job was removed.
func (c *call) isListed() bool {
	_, err := c.requester.job.listed.NextRun()
	return err == nil
}

// remove removes the gocron job of the call, because gocron keeps jobs that will not run again. It does not wait,
// because RemoveJob waits for StopJobs, which waits for the run.
func (c *call) remove() {
	go func() { _ = c.requester.job.scheduler.RemoveJob(c.id) }()
}

// Unlock ends the claim.
func (r *run) Unlock(context.Context) error {
	if !r.isTaskCalled {
		// A listener refused the task, which would have received the run.
		<-r.call.runs
	}
	defer r.call.remove()
	return r.End()
}

var errNoLock = errors.New("gocronlock: the scheduler has an elector of its own and asks for no lock: " +
	"give the elector to cronlock.New (WithElector)")

// runTask starts the run that Lock has claimed. It is the task of the gocron job.
func (c *call) runTask(context.Context) error {
	select {
	case r := <-c.runs:
		r.isTaskCalled = true
		// The job may have been removed while listeners ran.
		if !c.isListed() {
			return errGone
		}
		return r.Call()
	default:
		// There was no Lock.
		c.requester.clearPending(c.id)
		c.remove()
		return errNoLock
	}
}
