package cronlock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/internal/hosting"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

func init() {
	hosting.NewClaim = func(ctx context.Context, job any, byHand bool) (hosting.Claim, error) {
		c, err := job.(*Job).claim(ctx, byHand)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// A claim is the right to start a run: this replica holds the job's lease. Nothing is recorded yet. Call starts the run,
// and End gives the lease back.
type claim struct {
	job       *Job
	byHand    bool
	began     time.Time
	ctx       context.Context // of the call, and of the term if there is one
	term      *membership     // nil: there is no elector, or the run is by hand
	entered   bool            // of the Service
	lease     *core.Lease
	runCtx    context.Context // of the run
	cancelRun func()
	endOnce   sync.Once

	entry                // of what is to start; none for a run by hand
	previous   time.Time // the last tick before it that is known to have completed without an error
	superseded int       // ticks between it and the latest one before that was started

	isCalled bool
	fnErr    error // the function's; errPanicked until it has returned
}

var errPanicked = errors.New("the function panicked")

// RunDue runs the tick that is to start now, and returns when the run has ended. Usually that is the latest due tick; see
// the rules in the package document. The context of the run has the values of ctx and ends with it. If this replica is just
// looking for a tick of the job, RunDue waits until it has looked.
//
// The error is the function's; or it is an [*Error], and nothing was started: core.ErrHeld if the job runs elsewhere,
// core.ErrDone if the latest tick was started, ErrMissed, ErrNotDue, leader.ErrNotLeader, core.ErrUnavailable if no quorum
// of nodes answered, core.ErrClosed, or that of ctx. If a tick may start later, the engine then looks again by itself.
func (j *Job) RunDue(ctx context.Context) error { return j.run(ctx, false) }

// RunNow runs the job by hand, without a tick, under the same lease: it fails with core.ErrHeld while another run goes on,
// and takes no tick away. RunNow waits up to three seconds for the lease, which a look for ticks also holds for a moment. The
// run is not bound to the leadership and leaves no record. If this replica does not lead, a tick that falls due during the
// run may start up to a TTL after the end of the run. The errors are those of RunDue.
func (j *Job) RunNow(ctx context.Context) error { return j.run(ctx, true) }

func (j *Job) run(ctx context.Context, byHand bool) error {
	c, err := j.claim(ctx, byHand)
	if err != nil {
		return err
	}
	defer c.End() // also of a function that panics; what it could not record is logged
	return c.Call()
}

func (j *Job) claim(ctx context.Context, byHand bool) (*claim, error) {
	c := &claim{job: j, byHand: byHand, began: time.Now(), ctx: ctx, cancelRun: func() {}}
	defer func() { // also when an observer, or the schedule, panics
		if c.runCtx == nil {
			c.release()
		}
	}()

	err := c.enter()
	switch {
	case err != nil:
	case byHand:
		err = c.acquireLease(ctx, j.service.locker.Acquire)
	default:
		err = c.claimDueTick()
	}
	if err != nil {
		return nil, c.refuse(err)
	}

	run := Run{Job: j.name, FencingToken: c.lease.FencingToken()}
	if !byHand {
		run.Tick, run.Previous, run.Next, run.Attempt = c.tick, c.previous, j.schedule.Next(c.tick), c.nextAttempt()
	}
	values := context.WithValue(NewContext(c.lease.Context(), run), runJobKey{j.service}, j)
	c.runCtx, c.cancelRun = join.Contexts(values, c.ctx, c.lease.Context())
	return c, nil
}

// insideKey is the key under which the context of a run has its job.
type runJobKey struct{ *Service }

// enter lets the claim in, and into the term in which this process leads, if it must lead.
func (c *claim) enter() error {
	s := c.job.service
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	if c.job.removed.Err() != nil {
		return core.ErrClosed
	}
	c.entered = s.gate.Enter()
	if !c.entered {
		return core.ErrClosed
	}

	if s.elector == nil || c.byHand {
		return nil
	}
	term, err := joinTerm(c.ctx, s.elector)
	if err != nil {
		return err
	}
	c.ctx, c.term = term, term
	return s.addTermClaim(c)
}

const (
	dueTolerance = 50 * time.Millisecond // by how much a tick may be due later, for a call to be for it
	maxSpread    = 50 * time.Millisecond // how long a replica leaves a tick to others, at most
	maxKeyWait   = 3 * time.Second       // how long a look may have the lease of a job, or the key of a record, in the way of others
	// fewTicks is how many ticks are read under the job's lease. More are read before.
	maxTicksUnderLease = 10
)

var errPollTimeout = fmt.Errorf("%w in time: the look took as long as the TTL", core.ErrUnavailable)

// look finds what is to start, and takes the job's lease for it. Only one claim of a job looks at a time. A look ends after a
// TTL; what it has read until then, the next one knows.
func (c *claim) claimDueTick() error {
	j := c.job
	wait, stop := join.Contexts(c.ctx, j.removed)
	defer stop()
	j.polling.Add(1)
	defer j.polling.Add(-1)
	if err := acquireSlot(wait, j.pollSlot); err != nil {
		return err
	}
	defer releaseSlot(j.pollSlot)
	if err := c.waitForTick(wait); err != nil {
		return err
	}
	if err := acquireSlot(wait, j.service.pollSlots); err != nil {
		return err
	}
	defer releaseSlot(j.service.pollSlots)

	look, end := context.WithTimeout(wait, j.service.locker.TTL())
	defer end()
	err := c.checkRecords(look)
	if err == nil {
		err = c.acquireLease(look, j.service.locker.TryAcquire)
	}
	if err == nil {
		err = c.chooseTick(look)
	}
	if err != nil && look.Err() != nil && wait.Err() == nil {
		return errPollTimeout
	}
	return err
}

// enterTurn waits for a place among those that do something at the same time.
func acquireSlot(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func releaseSlot(places chan struct{}) { <-places }

// due waits until the latest tick is due by the nodes' clocks. It also returns the tick that follows.
func (c *claim) waitUntilDue(ctx context.Context) (tick, next time.Time, err error) {
	now := c.job.service.now()
	tick, next = c.job.latest(now.Add(dueTolerance))
	c.entry = entry{tick: tick, startLimit: c.job.startLimit}
	switch {
	case tick.IsZero():
		err = ErrNotDue
	case !pause.For(ctx, tick.Sub(now)):
		err = context.Cause(ctx)
	}
	return tick, next, err
}

// await waits until the latest tick is due by the nodes' clocks, and for a random moment more, so that replicas share the
// ticks. It fails if this process knows that there is nothing to start.
func (c *claim) waitForTick(ctx context.Context) error {
	j := c.job
	tick, next, err := c.waitUntilDue(ctx)
	if err != nil {
		return err
	}
	if err := j.skipReason(tick); err != nil {
		c.pollIfDueSoon(tick, next)
		return err
	}
	if j.service.elector == nil && !next.IsZero() && !pause.For(ctx, rand.N(min(next.Sub(tick)/20, maxSpread)+1)) {
		return context.Cause(ctx)
	}
	return nil
}

// lookEarly makes the engine look when the next tick is due, if that is soon: the call may have been for that tick.
func (c *claim) pollIfDueSoon(tick, next time.Time) {
	early := next.Sub(c.job.service.now())
	if !next.IsZero() && early < min(next.Sub(tick)/2, time.Second) {
		c.job.poller.pollWithin(early)
	}
}

// find fails where the latest tick is over: so of many replicas few ask for the job's lease. If this process knows little of
// the ticks before, as after its start, find also reads those, so that the lease need not be held for so long. It then first
// makes sure that nobody has the job's lease: what was started before is then on record, and from now on only this tick, a
// later one, or once more the last one that was started can start.
func (c *claim) checkRecords(ctx context.Context) error {
	j := c.job
	if len(j.unknownTicks(c.tick, maxTicksUnderLease+1)) <= maxTicksUnderLease {
		return c.checkLatestTick(ctx)
	}
	state, err := j.service.locker.Inspect(ctx, j.runKey())
	switch {
	case err != nil:
		return err
	case state.Holder != nil:
		return &core.OpError{Op: core.OpAcquire, Key: j.runKey(), Err: core.ErrHeld, RetryAfter: state.Holder.Left}
	case state.Unknown():
		return &core.OpError{Op: core.OpAcquire, Key: j.runKey(), Err: core.ErrHeld}
	}
	_, _, err = j.lastStarted(ctx, c.tick)
	if err != nil {
		return err
	}
	if err := j.skipReason(c.tick); errors.Is(err, core.ErrDone) {
		return err
	}
	return nil
}

// filter reads the record with which the latest tick is over.
func (c *claim) checkLatestTick(ctx context.Context) error {
	j := c.job
	final := j.startKey(c.tick, 1)
	if j.startLimit > 1 {
		final = j.endKey(c.tick)
	}
	found, err := j.readRecords(ctx, maxKeyWait, final)
	if err != nil || found[0] == nil {
		return err
	}
	e := entry{tick: c.tick, state: tickOver, startLimit: j.startLimit}
	if j.startLimit > 1 {
		e.end = found[0]
	} else {
		e.start = found[0]
	}
	if j.startLimit == 1 && e.start.By == j.service.replicaID && j.memory.isPending(start{c.tick, 1}) {
		return nil // this process has not begun it
	}
	j.memory.add(e)
	_, next := j.latest(c.tick)
	c.pollIfDueSoon(c.tick, next)
	return core.ErrDone
}

// take takes the job's lease.
func (c *claim) acquireLease(ctx context.Context, acquire func(context.Context, string, ...core.CallOption) (*core.Lease, error)) (err error) {
	j := c.job
	c.lease, err = acquire(ctx, j.runKey(), core.Name(j.name), core.MaxWait(maxKeyWait))
	if err == nil {
		j.service.quorumGranted.Store(true)
	}
	return err
}

// choose decides what is to start: the latest tick that was started, once more, if that is owed; otherwise the latest tick
// that is due by the nodes' clocks, which have answered by now. Runs do not overlap, and an orphan goes first, so nothing is
// owed of the ticks before the latest that was started. A tick is late by what it was when the look began: what the look
// itself takes is not the tick's fault.
func (c *claim) chooseTick(ctx context.Context) error {
	j := c.job
	due, _, err := c.waitUntilDue(ctx)
	if err != nil {
		return err
	}
	started, waiting, err := j.lastStarted(ctx, due)
	if err != nil {
		return err
	}
	late := waiting > 0 && j.timeAt(c.began).Sub(due) > j.grace
	switch {
	case started.state == tickOrphaned:
		c.entry = started
		// A function that fails for a moment, on whatever replica, must not use up all starts in that moment.
		since := j.service.now().Sub(started.start.At)
		if !pause.For(ctx, min(retryDelay-since, retryDelay)) {
			return context.Cause(ctx)
		}
	case waiting == 0:
		return core.ErrDone
	case late && !started.isStarted() && due.Before(j.added): // a new job has missed nothing
		j.memory.setLate(due, c.began, ErrNotDue)
		return ErrNotDue
	case late:
		j.memory.setLate(due, c.began, ErrMissed)
		return ErrMissed
	case started.isStarted():
		c.superseded = waiting - 1
	}
	c.previous, err = j.findPrevious(ctx, started)
	c.advance(onClaim)
	return err
}

// completed returns the last tick, up to the one of e, that is known to have completed without an error. The end of e may
// have been recorded since it was read.
func (j *Job) findPrevious(ctx context.Context, e entry) (time.Time, error) {
	if e.isStarted() && e.end == nil && e.state == tickOver {
		end, err := j.readRecords(ctx, maxKeyWait, j.endKey(e.tick))
		if err != nil {
			return time.Time{}, err
		}
		e.end = end[0]
		j.memory.add(e)
	}
	return e.lastCompleted(), nil
}

// happens notes what becomes of the tick. A run by hand has none, and a Call too many changes nothing.
func (c *claim) advance(h transition) {
	if next := c.state.next(h, c.startLimit-c.nextAttempt()); next != impossible {
		c.state = next
	}
}

// Call records the start, calls the function, and returns its error, which matches core.ErrLost if the lease was lost.
// If the run cannot start any more, the error is an [*Error]. A second Call starts a run by hand again; for a tick, its
// error matches core.ErrDone.
func (c *claim) Call() error {
	if err := c.start(); err != nil {
		c.advance(onRelease)
		return c.refuse(err)
	}
	j := c.job
	j.service.addRun(c)
	c.isCalled, c.fnErr = true, errPanicked
	j.event(c.ctx, EventRun)
	if c.nextAttempt() > 1 {
		j.event(c.ctx, EventRerun)
	}
	j.reportSuperseded(c.ctx, c.superseded)
	j.outage.clear()
	end := onInterruption // where the function panics
	defer func() { c.advance(end) }()
	c.fnErr = j.fn(c.runCtx)
	if c.fnErr == nil || c.runCtx.Err() == nil {
		end = onCompletion
	}
	return errors.Join(c.fnErr, c.lease.Lost())
}

// begin records the start of a tick.
func (c *claim) start() error {
	j := c.job
	if err := cmp.Or(context.Cause(c.runCtx), context.Cause(j.removed)); err != nil || c.byHand {
		return err
	}
	mine, err := c.recordStart()
	err = cmp.Or(err, context.Cause(c.runCtx))
	if err != nil {
		return err // a start that is on record stays this process's to begin
	}
	j.memory.clearPending()
	if !mine {
		j.poller.retryIn(0) // the replica that has written it may have died in doing so
		return core.ErrDone
	}
	c.advance(onStart)
	return nil
}

// recordStart has a quorum record the start, and reports whether it is this claim's. If this process has asked for the same
// start before, and the nodes have that record, then it has not begun the run: it did not learn of the record, or was told
// to stop just then. It begins the run now.
func (c *claim) recordStart() (mine bool, err error) {
	j := c.job
	again := j.memory.setPending(start{c.tick, c.nextAttempt()})
	mine, found, err := c.writeRecord(c.runCtx, j.startKey(c.tick, c.nextAttempt()), nil)
	return mine || again && found.By == j.service.replicaID, err
}

// End gives the job's lease back. After Call, End first records the end of the run, unless the tick is to be started again.
// Without Call, the tick stays free for other replicas. The error says that the end could not be recorded. Calling End
// again does nothing.
func (c *claim) End() (err error) {
	c.endOnce.Do(func() {
		defer c.release()
		c.advance(onRelease) // unless it was called
		if c.isCalled && !c.byHand {
			c.rememberRun()
		}
		if c.isCalled && c.state == tickOver {
			err = c.recordEnd()
		}
		if c.isCalled && errors.Is(errors.Join(context.Cause(c.runCtx), c.lease.Lost()), core.ErrLost) {
			c.job.event(c.ctx, EventLost)
		}
	})
	return err
}

// remember notes what this process knows of its run, whatever becomes of the record: that the tick is over, and that no tick
// that fell due during the run was started, because this process has had the job's lease.
func (c *claim) rememberRun() {
	j := c.job
	if c.state == tickOver {
		c.rememberEnd(c.newRecord(c.fnErr))
	}

	now := time.Now() // before it sees that it has the lease, or it might be paused in between
	due, _ := j.latest(j.timeAt(now))
	if c.lease.Lost() != nil {
		return
	}
	for _, tick := range ticksBefore(j.schedule, due, c.tick) {
		j.memory.add(entry{tick: tick, state: tickOver, unstartedAt: now})
	}
}

// noteEnd notes that the tick is over. Its end is noted if the run succeeded. The end of one that failed counts when it is on
// record, because otherwise another replica may start the tick again, and succeed.
func (c *claim) rememberEnd(end record) {
	e := entry{tick: c.tick, state: tickOver, start: &end, startLimit: c.startLimit}
	if c.fnErr == nil {
		e.end = &end
	}
	c.job.memory.add(e)
}

// record records the end of the run. It tries that for as long as the job's lease lives, because until then no other replica
// can take the tick for one that has not completed; but no longer than Close, of the Service or of the elector, waits.
func (c *claim) recordEnd() error {
	j := c.job
	ctx, stop := join.Contexts(context.WithoutCancel(c.ctx), c.lease.Context(), j.service.abandoned)
	defer stop()
	for {
		_, end, err := c.writeRecord(context.WithoutCancel(c.ctx), j.endKey(c.tick), c.fnErr)
		if err == nil && c.fnErr != nil {
			j.memory.add(entry{tick: c.tick, state: tickOver, start: &end, end: &end, startLimit: c.startLimit})
		}
		if err == nil || !isRetryable(err) || c.isAbandoned() || !pause.For(ctx, retryDelay/4) {
			return c.reportUnrecorded(err)
		}
	}
}

// mayPass reports whether a record that could not be written may be written later.
func isRetryable(err error) bool {
	switch core.ClassOf(err) {
	case core.ClassHeld, core.ClassUnavailable, core.ClassLost:
		return true
	}
	return false
}

// isDismissed reports whether the elector's Close waits no longer for the run.
func (c *claim) isAbandoned() bool {
	return c.term != nil && errors.Is(context.Cause(c.term), leader.ErrNotLeader)
}

// unrecorded tells that the end is not on record. A job that is started once has nothing to lose but its history.
func (c *claim) reportUnrecorded(err error) error {
	j := c.job
	if err != nil && j.startLimit > 1 {
		j.event(c.ctx, EventUnrecorded)
		j.log(slog.LevelError, "cronlock: the end of a run was not recorded: another replica may start its tick again",
			"tick", stamp(c.tick), "attempt", c.nextAttempt(), "err", err)
	}
	return err
}

// says is what this process records of a start, or of an end with the error of the function.
func (c *claim) newRecord(failed error) record {
	j := c.job
	r := record{By: j.service.replicaID, At: j.service.now().UTC(), Attempt: c.nextAttempt(), StartLimit: j.startLimit, Previous: c.previous}
	if failed != nil {
		r.Error = strings.ToValidUTF8(fmt.Sprint(failed), "?") // which contains a panic of its method
		r.Error = cmp.Or(r.Error, "an error without text")
		r.Error = strings.ToValidUTF8(r.Error[:min(len(r.Error), 200)], "")
	}
	return r
}

// write has a quorum record a start or an end, and reports whether this call did. If not, it returns the record that another
// has written.
func (c *claim) writeRecord(ctx context.Context, key string, failed error) (mine bool, found record, err error) {
	j := c.job
	result, err := j.service.locker.OnceResult(ctx, key, func(context.Context) ([]byte, error) {
		mine = true
		return json.Marshal(c.newRecord(failed))
	}, core.Name(j.name), core.Retention(j.retention(c.tick)), core.MaxWait(time.Second))
	if err == nil {
		err = json.Unmarshal(result, &found)
	}
	return mine, found, err
}

// refuse says why nothing starts, and sees to it that the job is looked at again when that may have changed.
func (c *claim) refuse(err error) error {
	j := c.job
	event, expected := classify(err)
	refusal := &Error{Job: j.name, Tick: c.tick, Err: err}
	if !j.service.isWaitingForNewNodes(err) {
		j.event(c.ctx, event)
		if !c.byHand {
			j.outage.report(j, event, refusal)
		}
	}
	if op, ok := errors.AsType[*core.OpError](err); ok && event == EventHeld {
		j.poller.retryIn(op.RetryAfter + jitter()) // the holder may die, or run an earlier tick
	} else if !expected && event != EventMissed {
		j.poller.retryIn(retryDelay + jitter())
	}
	return refusal
}

// give ends the claim in this process.
func (c *claim) release() {
	j := c.job
	if c.entered {
		defer j.service.gate.Leave()
	}
	defer j.service.removeClaim(c)
	if c.term != nil {
		defer c.term.close()
	}
	if c.state == tickOrphaned {
		defer j.poller.retryIn(0) // what stopped the run may still be there
	} else if c.isCalled {
		defer j.poller.pollWithin(0) // a tick may have fallen due meanwhile
	}
	defer c.cancelRun()
	if c.lease != nil {
		j.poller.pollWithin(hostTimeout) // the tick may still be due, as where a listener of the host refused it
		c.lease.Release(context.WithoutCancel(c.ctx))
	}
}
