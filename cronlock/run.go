package cronlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A run is one run of a job, from the end of Lock to the end of Unlock. It is the gocron.Lock.
type run struct {
	cl      *claim
	term    *term
	attempt int
	tick    *core.Lease // nil: no tick has caused it
	job     *core.Lease // nil: runs may overlap

	ctx    context.Context
	cancel context.CancelCauseFunc
	unjoin func()
	once   sync.Once

	offeredOn context.Context // what Task finds the run by
	started   chan struct{}   // closed when Task has taken the run over, or it has ended without
	fetched   chan struct{}   // closed when Lock has fetched the run, if it was claimed in the background

	mu       sync.Mutex
	taken    bool  // by Task,
	returned bool  // which has returned
	err      error // with this,
	stopped  bool  // because the scheduler has stopped the job, or the leadership went
}

func (cl *claim) newRun(t *term, attempt int, tick, job *core.Lease) *run {
	r := &run{cl: cl, term: t, attempt: attempt, tick: tick, job: job, started: make(chan struct{}), fetched: make(chan struct{})}
	info := Run{Service: cl.c.service, Job: cl.job.name, Tick: cl.tick, Attempt: attempt}
	parent, ends := cl.ctx, []context.Context{cl.ctx}
	for _, lease := range r.leases() {
		parent = lease.Context() // has the values of the job's context, and not its end
		ends = append(ends, lease.Context())
		info.FencingToken = lease.FencingToken()
	}
	if t != nil {
		parent = t.mark(parent)
		ends = append(ends, t.work)
	}
	ctx, cancel := context.WithCancelCause(NewContext(parent, info))
	r.cancel = cancel
	r.ctx, r.unjoin = core.Join(ctx, ends...)
	if cl.policy.overlap == Replace && !cl.next.IsZero() {
		timer := cl.c.clock.AfterFunc(cl.next.Sub(cl.c.clock.Now()), r.replace)
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	cl.c.busy(+1)
	cl.job.mu.Lock()
	cl.job.running[r] = struct{}{}
	cl.job.mu.Unlock()
	return r
}

// leases are those of the tick and of the job, as far as the run has them.
func (r *run) leases() []*core.Lease {
	return slices.DeleteFunc([]*core.Lease{r.tick, r.job}, func(l *core.Lease) bool { return l == nil })
}

// replace tells the run to stop for the job's next tick.
func (r *run) replace() {
	if r.ctx.Err() != nil {
		return
	}
	r.cl.event(EventReplaced)
	r.cancel(ErrReplaced)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.taken {
		r.cl.job.deaf.Do(func() {
			r.cl.c.logger.Warn("cronlock: a run is to be replaced, but was not started by Cron.Task, so that nothing can tell it to stop", "job", r.cl.job.name)
		})
	}
}

// replace tells all runs of the job in this process to stop.
func (j *job) replace() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for r := range j.running {
		r.replace()
	}
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

// Unlock ends the run: the tick is recorded as done, and the job is free. gocron calls it when the function
// has returned, with a context that Shutdown has cancelled, and drops its error, so the error is logged too.
func (r *run) Unlock(ctx context.Context) (err error) {
	r.once.Do(func() { err = r.end() })
	return err
}

func (r *run) end() error {
	cl := r.cl
	cl.c.handoff.withdraw(r)
	lost := r.lost()
	r.mu.Lock()
	outcome, unfinished := outcomeRan, r.taken && !r.returned || r.stopped // by a panic, or cut short
	if !r.taken {
		cl.job.plain.Store(true)
	}
	if r.err != nil || unfinished {
		outcome = outcomeFailed
	}
	r.mu.Unlock()
	if lost != nil {
		outcome = outcomeLost
	}
	if lost != nil || r.term.lost() != nil {
		cl.event(EventLost)
	}
	r.cancel(core.ErrReleased)

	var err error
	var wg sync.WaitGroup
	wg.Go(func() { cl.release(r.job) })
	switch {
	case r.tick == nil:
	case unfinished && cl.policy.attempts > 1:
		cl.release(r.tick) // for another attempt
	default:
		if err = cl.complete(r.tick, cl.record(outcome, r.attempt)); err != nil {
			cl.event(EventUnrecorded)
			cl.c.logger.Error("cronlock: a run's end could not be recorded: where the policy allows, another replica runs the tick again",
				"job", cl.job.name, "tick", cl.id, "attempt", r.attempt, "err", err)
		}
	}
	wg.Wait()
	r.over()
	return err
}

// abandon ends a run that has not started. Its attempt stays recorded.
func (r *run) abandon() {
	r.once.Do(func() {
		r.cancel(core.ErrReleased)
		r.cl.release(r.leases()...)
		r.over()
	})
}

func (r *run) over() {
	r.unjoin()
	r.cl.c.busy(-1)
	r.cl.job.ended(r)
	r.cl.c.leave(r.term)
}

func (j *job) ended(r *run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, r)
	if len(j.running) == 0 && len(j.handles) == 0 && len(j.handovers) == 0 {
		r.cl.c.forget(j)
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
