package cronlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A run is one run of a job, from the start of Lock to the end of Unlock. It is the gocron.Lock.
type run struct {
	job  *Job
	tick tick
	from *call
	ctx  context.Context // gocron's
	term context.Context // the same, and ends with the leadership

	attempt      int
	tickLease    *core.Lease // nil: no tick has caused the run
	attemptLease *core.Lease
	jobLease     *core.Lease // nil: runs may overlap
	leave        func()
	settled      bool // it was decided that the tick does not run

	work   context.Context // of the function
	cancel context.CancelCauseFunc
	unjoin func()
	once   sync.Once

	begun, returned bool // by the function
	err             error
	stopped         bool  // it returned an error when it had been told to stop
	why             error // the reason for which it has not begun
}

// prepare makes the context of the function.
func (r *run) prepare() {
	info := Run{Service: r.job.cron.service, Job: r.job.name, Tick: r.tick.at, Attempt: r.attempt}
	parent, ends := r.term, []context.Context{r.term}
	for _, lease := range r.leases() {
		parent = lease.Context() // has the values of the term's context, and not its end
		ends = append(ends, lease.Context())
		info.FencingToken = lease.FencingToken()
	}
	ctx, cancel := context.WithCancelCause(NewContext(parent, info))
	r.cancel = cancel
	r.work, r.unjoin = core.Join(ctx, ends...)
	if r.job.policy.overlap == Replace && !r.tick.next.IsZero() {
		clock := r.job.cron.clock
		timer := clock.AfterFunc(r.tick.next.Sub(clock.Now()), r.replace)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	r.job.mu.Lock()
	r.job.running[r] = struct{}{}
	r.job.mu.Unlock()
}

// leases are those of the tick and of the job, as far as the run has them.
func (r *run) leases() []*core.Lease {
	return slices.DeleteFunc([]*core.Lease{r.tickLease, r.jobLease}, func(l *core.Lease) bool { return l == nil })
}

// replace tells the run to stop for the job's next tick.
func (r *run) replace() {
	if r.work.Err() == nil {
		r.event(EventReplaced)
		r.cancel(ErrReplaced)
	}
}

// replaceOthers tells the runs of earlier ticks in this process to stop; one by hand, all of the job's.
func (r *run) replaceOthers() {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	for o := range r.job.running {
		if r.tick.at.IsZero() || o.tick.at.Before(r.tick.at) {
			o.replace()
		}
	}
}

// call runs the function, if the run can begin. gocron has called its listeners in between.
func (r *run) call() error {
	if r.why = r.begin(); r.why != nil {
		err := explain(r.why)
		r.event(meaningOf(err).event)
		return &TickError{Job: r.job.name, Tick: r.tick.at, Err: err}
	}
	r.begun = true
	r.event(EventRun)
	if r.attempt > 1 || r.tick.late {
		r.event(EventRerun)
	}
	err := r.job.fn(r.work)
	r.stopped = err != nil && r.work.Err() != nil && !errors.Is(context.Cause(r.work), ErrReplaced)
	r.err, r.returned = errors.Join(err, r.lost()), true
	return r.err
}

// begin records the attempt: a run that is not recorded has not started, and is left to others; one that is, is not
// started more often than its policy allows, although its replica may die.
func (r *run) begin() error {
	if r.work.Err() != nil {
		return context.Cause(r.work)
	}
	if err := r.inTime(); err != nil {
		return err
	}
	if r.attemptLease == nil {
		return nil
	}
	err := r.complete(r.attemptLease, outcomeStarted)
	if outage(err) && r.job.policy.runAnyway {
		err = nil
	}
	if err == nil && r.work.Err() != nil { // it has ended meanwhile
		err = context.Cause(r.work)
	}
	return err
}

// lost is why the run is not the only one any more, if so.
func (r *run) lost() error {
	for _, lease := range r.leases() {
		if err := lease.Lost(); err != nil {
			return err
		}
	}
	return nil
}

// deposed reports whether the leadership was lost, and not given up.
func (r *run) deposed() bool {
	return r.term.Err() != nil && errors.Is(context.Cause(r.term), ErrLeadershipLost) && errors.Is(context.Cause(r.term), core.ErrLost)
}

// Unlock ends the run: the tick is recorded as done, and the job is free. gocron calls it when the function has returned
// or panicked, or was not called, with a context that Shutdown has cancelled, and drops its error, so the error is logged
// too.
func (r *run) Unlock(context.Context) (err error) {
	r.once.Do(func() { err = r.end() })
	return err
}

// An ending is what a run comes to.
type ending struct {
	outcome string         // of the tick, as recorded; empty: the tick is free for others
	event   core.EventKind // empty: none
}

// ending is, in order:
//
//	the function                                        the tick             event
//	was not called: a listener of gocron's said no      free                 tick_skipped
//	was not called: the run could not begin any more    free                 that of the reason
//	panicked, or was stopped and returned an error      free at AtLeastOnce  run_lost if a lease was
//	any of these or of the following, a lease lost      lost                 run_lost
//	panicked, or returned an error                      failed               -
//	returned nil, stopped or not                        ran                  -
func (r *run) ending() ending {
	lost, unfinished := r.lost() != nil, !r.returned || r.stopped
	var e ending
	if lost || r.deposed() {
		e.event = EventLost
	}
	switch {
	case !r.begun && r.why == nil:
		e.event = EventSkipped
	case !r.begun:
		e.event = ""
	case unfinished && r.job.policy.attempts > 1:
	case lost:
		e.outcome = outcomeLost
	case r.err != nil || unfinished:
		e.outcome = outcomeFailed
	default:
		e.outcome = outcomeRan
	}
	return e
}

func (r *run) end() (err error) {
	if !r.begun && r.why == nil {
		select {
		case <-r.from.handoff: // it is there, because no other run is offered before
		default:
		}
	}
	e := r.ending()
	if e.event != "" {
		r.event(e.event)
	}
	r.cancel(core.ErrReleased)
	var wg sync.WaitGroup
	wg.Go(func() { r.release(r.jobLease, r.attemptLease) })
	switch {
	case r.tickLease == nil:
	case e.outcome == "":
		r.release(r.tickLease)
	default:
		if err = r.complete(r.tickLease, e.outcome); err != nil {
			r.event(EventUnrecorded)
			r.job.cron.locker.Logger().Error("cronlock: a run's end could not be recorded: where the policy allows, another replica runs the tick again",
				"job", r.job.name, "tick", r.tick.id, "attempt", r.attempt, "err", err)
		}
	}
	wg.Wait()
	r.unjoin()
	r.close()
	r.from.ended(r, r.why)
	return err
}

// close ends the run in this process.
func (r *run) close() {
	r.job.mu.Lock()
	delete(r.job.running, r)
	r.job.mu.Unlock()
	r.leave()
}

func (r *run) event(kind core.EventKind) {
	if kind != "" {
		r.job.cron.locker.Event(r.ctx, core.Event{Source: source, Name: r.job.name, Kind: kind})
	}
}

type runKey struct{}

// A Run describes the run that a context belongs to.
type Run struct {
	Service, Job string
	Tick         time.Time // the instant that the schedule names; zero for a run that no tick has caused, such as by RunNow
	Attempt      int       // from 1 on; more only with AtLeastOnce
	FencingToken uint64    // grows with every run of the job; with Allow, with every attempt at the tick; 0 without protection
}

// NewContext returns a context that belongs to the run, for the unit test of a function that calls [FromContext]. It
// holds no lease.
func NewContext(ctx context.Context, r Run) context.Context {
	return context.WithValue(ctx, runKey{}, r)
}

// FromContext returns the run whose context ctx is, or derives from.
func FromContext(ctx context.Context) (Run, bool) {
	r, ok := ctx.Value(runKey{}).(Run)
	return r, ok
}
