package cronlock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// A Claim is the right to start a run: this replica holds the job's lease. Nothing is recorded yet. Call starts the run,
// and End gives the lease back.
type Claim struct {
	job    *Job
	ctx    context.Context // of the host, and of the term if there is an elector
	leave  func()
	lease  *core.Lease
	choice choice // without a tick for a run by hand
	state  state
	work   context.Context // of the run
	stop   func()
	once   sync.Once

	begun bool
	err   error // the function's; errPanicked until it has returned
}

var errPanicked = errors.New("the function panicked")

// Claim takes what is to start now, and starts nothing: it is for hosts that do more between lock and run, such as
// listeners. Call [Claim.Call] and then, in any case, [Claim.End]. The errors are those of RunDue.
func (j *Job) Claim(ctx context.Context) (*Claim, error) { return j.claim(ctx, false) }

// ClaimNow is Claim for a run by hand, see RunNow.
func (j *Job) ClaimNow(ctx context.Context) (*Claim, error) { return j.claim(ctx, true) }

func (j *Job) claim(ctx context.Context, byHand bool) (*Claim, error) {
	c := &Claim{job: j, ctx: ctx, leave: func() {}, stop: func() {}}
	err := c.enter(byHand)
	if err == nil && !byHand {
		err = c.await()
	}
	if err == nil {
		err = c.take(byHand)
	}
	if err != nil {
		c.give()
		return nil, c.refuse(err)
	}
	return c, nil
}

// enter lets the run in, and into the term in which this process leads, if it must lead.
func (c *Claim) enter(byHand bool) error {
	s := c.job.service
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	if c.job.gone.Err() != nil || !s.gate.Enter() {
		return core.ErrClosed
	}
	c.leave = s.gate.Leave
	if s.elector == nil || byHand {
		return nil
	}
	term, depart, err := s.elector.Enter(c.ctx)
	c.ctx, c.leave = term, func() { depart(); s.gate.Leave() }
	return err
}

const (
	slack  = 50 * time.Millisecond // by how much a tick may be due later, for a call to be for it
	spread = 50 * time.Millisecond // how long a replica leaves a tick to others, at most
)

// await waits until the latest tick is due by the nodes' clocks, and for a random moment more, so that replicas share the
// ticks. It fails where that tick is over: so of many replicas few ask for the job's lease.
func (c *Claim) await() error {
	j, now := c.job, c.job.service.now()
	tick, next := latest(j.schedule, now.Add(slack))
	if tick.IsZero() {
		return ErrNotDue
	}
	c.choice.tick = tick
	wait := max(tick.Sub(now), 0)
	if j.service.elector == nil && !next.IsZero() {
		wait += rand.N(min(next.Sub(tick)/20, spread) + 1)
	}
	if !pause.For(c.ctx, wait) {
		return context.Cause(c.ctx)
	}
	final := j.startKey(tick, 1)
	if j.starts > 1 {
		final = j.endKey(tick)
	}
	r, err := j.read(c.ctx, final)
	if r == nil || err != nil {
		return err
	}
	j.settle(tick)
	if early := next.Sub(now); !next.IsZero() && early < min(next.Sub(tick)/2, time.Second) {
		j.lookIn(early) // the call may have been for the tick to come
	}
	return core.ErrDone
}

// take takes the job's lease, and then chooses what to start. The nodes have answered by then, so their clocks are known;
// and other replicas may have started ticks meanwhile.
func (c *Claim) take(byHand bool) (err error) {
	j := c.job
	if c.lease, err = j.service.locker.TryAcquire(c.ctx, j.runKey(), core.Name(j.name)); err != nil {
		return err
	}
	run := Run{Job: j.name, FencingToken: c.lease.FencingToken()}
	if !byHand {
		if err := c.choose(); err != nil {
			return err
		}
		run.Tick, run.Previous, run.Next, run.Attempt = c.choice.tick, c.choice.previous, j.schedule.Next(c.choice.tick), c.choice.attempt()
	}
	c.work, c.stop = join.Contexts(NewContext(c.lease.Context(), run), c.ctx, c.lease.Context())
	return nil
}

func (c *Claim) choose() (err error) {
	j, now := c.job, c.job.service.now()
	due, _ := latest(j.schedule, now.Add(slack))
	if due.IsZero() {
		c.choice = choice{}
		return ErrNotDue
	}
	if !pause.For(c.ctx, due.Sub(now)) {
		return context.Cause(c.ctx)
	}
	if c.choice, err = j.choose(c.ctx, due); errors.Is(err, core.ErrDone) || errors.Is(err, ErrMissed) {
		j.settle(due)
	}
	if err == nil {
		c.state = c.choice.state
		c.happens(looked)
	}
	return err
}

func (c *Claim) happens(h happening) {
	c.state = c.state.after(h, c.choice.most-c.choice.attempt())
}

// Call records the start, calls the function, and returns its error, which matches core.ErrLost if the lease was lost.
// If the run cannot start any more, the error is an [*Error].
func (c *Claim) Call() error {
	if err := c.begin(); err != nil {
		c.happens(refused)
		return c.refuse(err)
	}
	j := c.job
	c.begun, c.err = true, errPanicked
	j.running.Add(1)
	defer j.running.Add(-1)
	c.event(EventRun)
	if c.choice.attempt() > 1 {
		c.event(EventRerun)
	}
	for range c.choice.superseded {
		c.event(EventSuperseded)
	}
	end := stopped // where the function panics
	defer func() { c.happens(end) }()
	err := j.fn(c.work)
	if err == nil || c.work.Err() == nil {
		end = returned
	}
	c.err = err
	return errors.Join(err, c.lease.Lost())
}

// begin records the start of a tick.
func (c *Claim) begin() error {
	j := c.job
	if err := cmp.Or(context.Cause(c.work), context.Cause(j.service.closing)); err != nil || c.byHand() {
		return err
	}
	mine, err := j.write(c.work, j.startKey(c.choice.tick, c.choice.attempt()), c.choice.tick, c.choice.attempt(), nil)
	if err = cmp.Or(err, context.Cause(c.work)); err != nil {
		return err
	}
	if !mine {
		j.lookIn(0) // whoever has written it may have died in doing so
		return core.ErrDone
	}
	c.happens(started)
	return nil
}

func (c *Claim) byHand() bool { return c.choice.tick.IsZero() }

// End gives the job back. After Call it records the end of the run first, if the tick is not to be started again; without
// Call the tick is free for others. The error says that the end could not be recorded. Calling End again does nothing.
func (c *Claim) End() (err error) {
	c.once.Do(func() {
		if c.state == taken || c.state == retaken {
			c.happens(givenBack)
		}
		if c.begun && !c.byHand() && c.state == over {
			err = c.record()
		}
		if c.begun && c.work.Err() != nil && (c.lease.Lost() != nil || c.job.service.elector != nil && errors.Is(context.Cause(c.ctx), core.ErrLost)) {
			c.event(EventLost)
		}
		c.give()
		if c.begun {
			c.job.lookIn(0) // a tick may have fallen due meanwhile
		}
	})
	return err
}

// record records the end of the run. A job that is started once has nothing to lose but its history.
func (c *Claim) record() error {
	j := c.job
	_, err := j.write(context.WithoutCancel(c.ctx), j.endKey(c.choice.tick), c.choice.tick, c.choice.attempt(), c.err)
	if err == nil {
		j.settle(c.choice.tick)
	} else if j.starts > 1 {
		c.event(EventUnrecorded)
		j.service.locker.Logger().Error("cronlock: the end of a run was not recorded: its tick may be started again",
			"job", j.name, "tick", stamp(c.choice.tick), "attempt", c.choice.attempt(), "err", err)
	}
	return err
}

// refuse says why nothing starts, and sees to it that the job is looked at again when that may have changed.
func (c *Claim) refuse(err error) error {
	c.event(meaningOf(err).event)
	op, _ := errors.AsType[*core.OpError](err)
	switch class := core.ClassOf(err); {
	case meaningOf(err).event == EventNotLeader, errors.Is(err, ErrNotDue), errors.Is(err, ErrMissed), class == core.ClassDone,
		class == core.ClassClosed, class == core.ClassCancelled:
	case class == core.ClassHeld && op != nil:
		c.job.lookIn(op.RetryAfter + jitter()) // the holder may die, or run an earlier tick
	default:
		c.job.lookIn(retry + jitter())
	}
	return &Error{Job: c.job.name, Tick: c.choice.tick, Err: err}
}

// give ends the claim in this process.
func (c *Claim) give() {
	c.stop()
	if c.lease != nil {
		c.lease.Release(context.WithoutCancel(c.ctx))
	}
	c.leave()
}

func (c *Claim) event(kind core.EventKind) {
	if kind != "" {
		c.job.service.locker.Event(c.ctx, core.Event{Source: "cronlock", Name: c.job.name, Kind: kind})
	}
}
