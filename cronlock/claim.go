package cronlock

import (
	"cmp"
	"context"
	"encoding/json"
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
	job   *Job
	ctx   context.Context // of the host, and of the term if there is an elector
	wait  context.Context // ctx, until the job is removed or the Service closed
	leave func()
	turn  func() // ends that of this claim among those of other jobs
	lease *core.Lease
	work  context.Context // of the run
	stop  func()
	once  sync.Once

	entry                // of what is to start; none for a run by hand
	last       time.Time // the last tick before it that is known to have completed without an error
	superseded int       // ticks between it and the latest one before that was started

	begun bool
	err   error // the function's; errPanicked until it has returned
}

var errPanicked = errors.New("the function panicked")

// Claim takes the job's lease if a tick is to start now, and starts nothing. It is for hosts that do more between lock and
// run, such as calling listeners. Call [Claim.Call] and then, in any case, [Claim.End]. The errors are those of RunDue.
func (j *Job) Claim(ctx context.Context) (*Claim, error) { return j.claim(ctx, false) }

// ClaimNow is Claim for a run by hand, see RunNow.
func (j *Job) ClaimNow(ctx context.Context) (*Claim, error) { return j.claim(ctx, true) }

// RunDue runs the tick that is to start now, and returns when the run has ended. Usually that is the latest due tick; see
// the rules in the package document. The context of the run has the values of ctx and ends with it.
//
// The error is the function's; or it is an [*Error], and nothing was started: core.ErrHeld if the job runs elsewhere,
// core.ErrDone if the latest tick was started, ErrMissed, ErrNotDue, leader.ErrNotLeader, core.ErrUnavailable if no quorum
// of nodes answered, core.ErrClosed, or that of ctx. If a tick may start later, the engine then looks again by itself.
func (j *Job) RunDue(ctx context.Context) error { return run(j.Claim(ctx)) }

// RunNow runs the job by hand, without a tick, under the same lease: it fails with core.ErrHeld while another run goes on,
// and takes no tick away. RunNow waits up to a second for the lease, which a look for ticks also holds for a moment. The
// run is not bound to the leadership and leaves no record. If this replica does not lead, a tick that falls due during the
// run may start up to a TTL after the end of the run. The errors are those of RunDue.
func (j *Job) RunNow(ctx context.Context) error { return run(j.ClaimNow(ctx)) }

func run(c *Claim, err error) error {
	if err != nil {
		return err
	}
	defer c.End() // also of a function that panics; what it could not record is logged
	return c.Call()
}

func (j *Job) claim(ctx context.Context, byHand bool) (*Claim, error) {
	c := &Claim{job: j, ctx: ctx, leave: func() {}, stop: func() {}, turn: func() {}}
	hurry := func() {}
	defer func() { // also when an observer, or the schedule, panics
		hurry()
		c.turn()
		if c.work == nil {
			c.give()
		}
	}()
	err := c.enter(byHand)
	c.wait, hurry = join.Contexts(c.ctx, j.gone)
	if err == nil && !byHand {
		err = c.await()
	}
	if err == nil {
		err = c.take(byHand)
	}
	if err != nil {
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
	aLook  = time.Second           // how long a run by hand waits for the lease, which a look may have for a moment
)

// due waits until the latest tick is due by the nodes' clocks. It also returns the tick that follows.
func (c *Claim) due() (tick, next time.Time, err error) {
	now := c.job.service.now()
	tick, next = latest(c.job.schedule, now.Add(slack))
	c.entry = entry{tick: tick, most: c.job.starts}
	switch {
	case tick.IsZero():
		err = ErrNotDue
	case !pause.For(c.wait, tick.Sub(now)):
		err = context.Cause(c.wait)
	}
	return tick, next, err
}

// await waits until the latest tick is due by the nodes' clocks, and for a random moment more, so that replicas share the
// ticks. It fails where that tick is over: so of many replicas few ask for the job's lease. Of many jobs that are due at
// once, a few ask at a time: else requests would be late, and all would have to ask again.
func (c *Claim) await() error {
	j := c.job
	tick, next, err := c.due()
	if err != nil {
		return err
	}
	if j.service.elector == nil && !next.IsZero() && !pause.For(c.wait, rand.N(min(next.Sub(tick)/20, spread)+1)) {
		return context.Cause(c.wait)
	}
	select {
	case j.service.turns <- struct{}{}:
		c.turn = func() { <-j.service.turns }
	case <-c.wait.Done():
		return context.Cause(c.wait)
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
	if early := next.Sub(j.service.now()); !next.IsZero() && early < min(next.Sub(tick)/2, time.Second) {
		j.lookIn(early) // the call may have been for the tick to come
	}
	return core.ErrDone
}

// take takes the job's lease, and then chooses what to start. The nodes have answered by then, so their clocks are known;
// and other replicas may have started ticks meanwhile.
func (c *Claim) take(byHand bool) (err error) {
	j, acquire := c.job, c.job.service.locker.TryAcquire
	if byHand {
		acquire = j.service.locker.Acquire
	}
	if c.lease, err = acquire(c.ctx, j.runKey(), core.Name(j.name), core.MaxWait(aLook)); err != nil {
		return err
	}
	run := Run{Job: j.name, FencingToken: c.lease.FencingToken()}
	if !byHand {
		if err := c.choose(); err != nil {
			return err
		}
		run.Tick, run.Previous, run.Next, run.Attempt = c.tick, c.last, j.schedule.Next(c.tick), c.attempt()
	}
	c.work, c.stop = join.Contexts(NewContext(c.lease.Context(), run), c.ctx, c.lease.Context())
	return nil
}

// choose decides what is to start: the latest tick that was started, once more, if that is owed; otherwise the latest tick
// that is due by the nodes' clocks. Runs do not overlap, and an orphan goes first, so nothing is owed of the ticks before
// the latest that was started.
func (c *Claim) choose() error {
	j := c.job
	due, _, err := c.due()
	if err != nil {
		return err
	}
	var started entry // the latest that was
	waiting := 0      // so many are later
	for e, err := range j.back(c.ctx, due) {
		if err != nil {
			return err
		}
		if e.state != free {
			started = e
			break
		}
		waiting++
	}
	c.last = started.completed()
	late := waiting > 0 && j.service.now().Sub(due) > j.grace
	switch {
	case started.state == orphan:
		c.entry = started
	case waiting == 0:
		err = core.ErrDone
	case late && started.start == nil && due.Before(j.added): // a new job has missed nothing
		err = ErrNotDue
	case late:
		err = ErrMissed
	case started.start != nil:
		c.superseded = waiting - 1
	}
	if err != nil {
		j.settle(due)
		return err
	}
	c.happens(looked)
	return nil
}

// happens notes what becomes of the tick. A run by hand has none, and a Call too many changes nothing.
func (c *Claim) happens(h happening) {
	if next := c.state.after(h, c.most-c.attempt()); next != impossible {
		c.state = next
	}
}

// Call records the start, calls the function, and returns its error, which matches core.ErrLost if the lease was lost.
// If the run cannot start any more, the error is an [*Error]. A second Call starts a run by hand again; for a tick, its
// error matches core.ErrDone.
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
	if c.attempt() > 1 {
		c.event(EventRerun)
	}
	for range c.superseded {
		c.event(EventSuperseded)
	}
	end := stopped // where the function panics
	defer func() { c.happens(end) }()
	c.err = j.fn(c.work)
	if c.err == nil || c.work.Err() == nil {
		end = returned
	}
	return errors.Join(c.err, c.lease.Lost())
}

// begin records the start of a tick.
func (c *Claim) begin() error {
	j := c.job
	if err := cmp.Or(context.Cause(c.work), context.Cause(j.gone)); err != nil || c.tick.IsZero() { // by hand
		return err
	}
	mine, err := c.write(c.work, j.startKey(c.tick, c.attempt()), nil)
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

// End gives the job's lease back. After Call, End first records the end of the run, unless the tick is to be started again.
// Without Call, the tick stays free for other replicas. The error says that the end could not be recorded. Calling End
// again does nothing.
func (c *Claim) End() (err error) {
	c.once.Do(func() {
		defer c.give()
		c.happens(givenBack) // unless it was called
		if c.begun && c.state == over {
			err = c.record()
		}
		if c.begun && errors.Is(errors.Join(context.Cause(c.work), c.lease.Lost()), core.ErrLost) {
			c.event(EventLost)
		}
	})
	return err
}

// record records the end of the run. A job that is started once has nothing to lose but its history.
func (c *Claim) record() error {
	j := c.job
	_, err := c.write(context.WithoutCancel(c.ctx), j.endKey(c.tick), c.err)
	if err == nil {
		j.settle(c.tick)
	} else if j.starts > 1 {
		c.event(EventUnrecorded)
		j.service.locker.Logger().Error("cronlock: the end of a run was not recorded: its tick may be started again",
			"job", j.name, "tick", stamp(c.tick), "attempt", c.attempt(), "err", err)
	}
	return err
}

// write records a start or an end, and reports whether this call did; if not, another has.
func (c *Claim) write(ctx context.Context, key string, failed error) (mine bool, err error) {
	j := c.job
	r := record{By: j.service.self, At: j.service.now().UTC(), Attempt: c.attempt(), Most: j.starts, Previous: c.last}
	if failed != nil {
		r.Error = failed.Error()
		r.Error = r.Error[:min(len(r.Error), 200)]
	}
	_, err = j.service.locker.OnceResult(ctx, key, func(context.Context) ([]byte, error) {
		mine = true
		return json.Marshal(r)
	}, core.Name(j.name), core.Retention(j.retention(c.tick)), core.MaxWait(time.Second))
	return mine, err
}

// refuse says why nothing starts, and sees to it that the job is looked at again when that may have changed.
func (c *Claim) refuse(err error) error {
	event, expected := meaningOf(err)
	c.event(event)
	if op, ok := errors.AsType[*core.OpError](err); ok && event == EventHeld {
		c.job.lookIn(op.RetryAfter + jitter()) // the holder may die, or run an earlier tick
	} else if !expected && event != EventMissed {
		c.job.lookIn(retry + jitter())
	}
	return &Error{Job: c.job.name, Tick: c.tick, Err: err}
}

// give ends the claim in this process.
func (c *Claim) give() {
	defer c.leave()
	c.stop()
	if c.lease != nil {
		c.lease.Release(context.WithoutCancel(c.ctx))
		c.job.lookIn(lookAgain) // the tick may still be due, as where a listener of the host refused it
	}
	if c.begun {
		c.job.lookIn(0) // a tick may have fallen due meanwhile
	}
}

func (c *Claim) event(kind core.EventKind) {
	if kind != "" {
		c.job.service.locker.Event(c.ctx, core.Event{Source: "cronlock", Name: c.job.name, Kind: kind})
	}
}
