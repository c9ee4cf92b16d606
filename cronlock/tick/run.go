package tick

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// A Claim is what a replica has of one run of a job, from [Job.Claim] to End. Call and End are called in turn, by one
// goroutine.
type Claim struct {
	job       *Job
	tick      tick
	scheduled bool            // the host has called; and not: it was asked to run the tick
	ctx       context.Context // the host's
	term      context.Context // the same, and ends with the leadership

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

	began           time.Time // the attempt, by the replica's clock
	recorded        bool      // the attempt
	begun, returned bool      // by the function
	err             error
	stopped         bool  // it returned an error when it had been told to stop
	why             error // the reason for which it has not begun
}

// runs are those of the job that are under way in this process.
func (j *Job) runs() (all []*Claim) {
	j.service.mu.Lock()
	defer j.service.mu.Unlock()
	for r := range j.service.running {
		if r.job == j {
			all = append(all, r)
		}
	}
	return all
}

// prepare makes the context of the function.
func (r *Claim) prepare() {
	info := Run{Service: r.job.service.name, Job: r.job.name, Tick: r.tick.At, Trigger: r.tick.trigger, Attempt: r.attempt}
	parent, ends := r.term, []context.Context{r.term}
	for _, lease := range []*core.Lease{r.tickLease, r.jobLease} {
		if lease == nil {
			continue
		}
		parent = lease.Context() // has the values of the term's context, and not its end
		ends = append(ends, lease.Context())
		info.FencingToken = lease.FencingToken()
	}
	ctx, cancel := context.WithCancelCause(NewContext(parent, info))
	r.cancel = cancel
	r.work, r.unjoin = join.Contexts(ctx, ends...)
	if r.job.policy.overlap == Replace && !r.tick.Next.IsZero() {
		r.replaceIn(r.tick.Next.Sub(r.job.service.clock()))
	}
	s := r.job.service
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[r] = struct{}{}
}

// replaceIn has the run replaced, at once where its time is over.
func (r *Claim) replaceIn(d time.Duration) {
	if d <= 0 {
		r.replace()
		return
	}
	timer := time.AfterFunc(d, r.replace)
	context.AfterFunc(r.work, func() { timer.Stop() })
}

// replace tells the run to stop for the job's next tick.
func (r *Claim) replace() {
	if r.work.Err() == nil {
		r.event(EventReplaced)
		r.cancel(ErrReplaced)
	}
}

// replaceOthers tells the runs of earlier ticks in this process to stop; one by hand, all of the job's.
func (r *Claim) replaceOthers() {
	for _, o := range r.job.runs() { // without its lock: that tells an observer, who may look at the job
		if r.tick.At.IsZero() || o.tick.At.Before(r.tick.At) {
			o.replace()
		}
	}
}

// Call records the attempt, calls the job's function, and returns its error; if a lease was lost meanwhile, that matches
// core.ErrLost as well. Where the run can not begin any more, it returns an [*Error]. Call it once, or not at all.
func (r *Claim) Call() error {
	if r.why = r.begin(); r.why != nil {
		err := explain(r.why)
		r.event(meaningOf(err).event)
		return &Error{Job: r.job.name, Tick: r.tick.At, Err: err}
	}
	r.begun = true
	r.event(EventRun)
	if r.attempt > 1 || r.tick.late && r.tick.trigger == "" {
		r.event(EventRerun)
	}
	err := r.try()
	r.stopped = err != nil && (r.work.Err() != nil || r.job.policy.retries > 0 && r.job.service.closing.Err() != nil) && !errors.Is(context.Cause(r.work), ErrReplaced)
	r.err, r.returned = errors.Join(err, r.lost()), true
	return r.err
}

// try calls the function, again and again as far as the policy wants that of one that returns errors.
func (r *Claim) try() error {
	p := r.job.policy
	run, _ := FromContext(r.work)
	for pauses := p.backoff; ; pauses *= 2 {
		err := r.job.fn(NewContext(r.work, run))
		if err == nil || run.Retry == p.retries || r.work.Err() != nil {
			return err
		}
		r.event(EventRetried)
		if !r.job.service.pause(r.work, pauses/2+rand.N(pauses/2+1)) {
			return err
		}
		run.Retry++
	}
}

// begin records the attempt: a run that is not recorded has not started, and is left to others; one that is, is not
// started more often than its policy allows, although its replica may die.
func (r *Claim) begin() error {
	if r.work.Err() != nil {
		return context.Cause(r.work)
	}
	if r.job.service.closing.Err() != nil {
		return core.ErrClosed
	}
	if err := r.inTime(); err != nil {
		return err
	}
	if r.attemptLease == nil {
		return nil
	}
	r.began = r.job.service.clock().UTC().Round(0)
	err := r.complete(r.attemptLease, started)
	r.recorded = err == nil
	if outage(err) && r.job.policy.runAnyway {
		err = nil
	}
	if err == nil && r.work.Err() != nil { // it has ended meanwhile
		err = context.Cause(r.work)
	}
	return err
}

// lost is why the run is not the only one any more, if so.
func (r *Claim) lost() error { return cmp.Or(r.tickLease.Lost(), r.jobLease.Lost()) }

// deposed reports whether the leadership was lost, and not given up.
func (r *Claim) deposed() bool {
	return errors.Is(context.Cause(r.term), ErrLeadershipLost) && errors.Is(context.Cause(r.term), core.ErrLost)
}

// Err returns why the run could not begin when Call was called, or nil.
func (r *Claim) Err() error { return r.why }

// End ends the run, after Call has returned or panicked, or instead of Call: the tick is recorded as done, if it is, and the
// job is free. It may be called again. An error means that the record may be missing; it is logged as well.
func (r *Claim) End() (err error) {
	r.once.Do(func() { err = r.end() })
	return err
}

// An ending is what a run comes to.
type ending struct {
	outcome Outcome        // of the tick, as recorded; empty: the tick is free for others
	event   core.EventKind // empty: none
}

// ending is, in order:
//
//	the function                                        the tick             event
//	was not called: End instead of Call                 free                 tick_skipped
//	was not called: the run could not begin any more    free                 that of the reason
//	was not called, though the attempt was recorded     as if it was stopped that of the reason
//	panicked, or was stopped and returned an error      free at AtLeastOnce  run_lost if a lease was
//	any of these or of the following, a lease lost      lost                 run_lost
//	panicked, or returned an error                      failed               -
//	returned nil, stopped or not                        ran                  -
func (r *Claim) ending() ending {
	lost, unfinished := r.lost() != nil, !r.returned || r.stopped
	var e ending
	switch {
	case !r.begun && r.why == nil:
		e.event = EventSkipped
	case r.begun && (lost || r.deposed()):
		e.event = EventLost
	}
	switch {
	case !r.begun && !r.recorded:
	case unfinished && r.job.policy.attempts > 1:
	case lost:
		e.outcome = Lost
	case r.err != nil || unfinished:
		e.outcome = Failed
	default:
		e.outcome = Ran
	}
	return e
}

func (r *Claim) end() (err error) {
	e := r.ending()
	if e.event != "" {
		r.event(e.event)
	}
	r.cancel(core.ErrReleased)
	var wg sync.WaitGroup
	wg.Go(func() { r.release(r.jobLease, r.attemptLease) })
	if e.outcome == "" || r.tickLease == nil {
		r.release(r.tickLease)
	} else if err = r.complete(r.tickLease, e.outcome); err != nil {
		r.event(EventUnrecorded)
		r.job.service.locker.Logger().Error("tick: a run's end could not be recorded: where the policy allows, another replica runs the tick again",
			"job", r.job.name, "tick", r.tick.id, "attempt", r.attempt, "err", err)
	}
	wg.Wait()
	r.unjoin()
	r.close()
	r.follow(r.why)
	return err
}

// close ends the run in this process.
func (r *Claim) close() {
	s := r.job.service
	s.mu.Lock()
	delete(s.running, r)
	s.mu.Unlock()
	r.leave()
}

func (r *Claim) event(kind core.EventKind) {
	if kind != "" {
		r.job.service.locker.Event(r.ctx, core.Event{Source: source, Name: r.job.name, Kind: kind})
	}
}

type runKey struct{}

// A Run describes the run that a context belongs to.
type Run struct {
	Service, Job string
	Tick         time.Time // the instant that the schedule names, or of the trigger; zero for a run by hand, such as by RunNow
	Trigger      string    // the id of the trigger; empty where there was none
	Attempt      int       // from 1 on; more only with AtLeastOnce
	Retry        int       // how often the function has returned an error in this run; more than 0 only with WithRetry
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
