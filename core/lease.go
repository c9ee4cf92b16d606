package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// A Lease is the right to act alone on a key until its context ends. The watchdog renews it until it is
// released, its holder's context ends, or no quorum confirms it in time. It is safe for concurrent use.
type Lease struct {
	attempt attempt // what the nodes know of the lease; its lock guards lifecycle, reached, proposed, renewing and onEnd
	ctx     leaseContext
	cancel  context.CancelCauseFunc

	lifecycle
	term
	askedNodes quorum.Set   // nodes that were sent anything, and may have the lease
	proposed   *wire.Record // by the first Complete
	renewal    *renewal     // under way
	onEnd      func(Outcome)

	callbacks callback.Queue // what the observer is told in the background of the call, if this is its first attempt

	// The watchdog's lock guards these.
	inspectAt clock.Instant
	heapIndex int // in the watchdog's heap
}

// start turns the attempt into a lease. t are the votes of the round that asked for the key, and sent is when that round
// began. start reports false if no trusted time is left, or if the Locker is closing.
func (lease *Lease) start(t *quorum.Tally, sent clock.Instant) bool {
	lease.extendTrust(sent, lease.attempt.p)
	if lease.remaining() <= 0 {
		return false
	}

	// The caller's context is the user's code, so that the lock is not held here.
	lease.ctx.Context, lease.cancel = context.WithCancelCause(lease.ctx.parent)
	held := lease.register(t, sent)
	if !held {
		lease.cancel(ErrClosed)
	}
	return held
}

// begin hands the lease to the watchdog, unless the Locker is closing.
func (lease *Lease) register(t *quorum.Tally, sent clock.Instant) bool {
	e, p := lease.attempt.e, lease.attempt.p
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	admitted := e.watchdog.add(lease, &e.gate)
	if !admitted {
		return false
	}

	e.localQueue.Holds(lease.attempt.lock.Resource(), heldBy{lease})
	lease.attempt.becomeLease()
	lease.askedNodes = t.Asked &^ t.With(wire.CircuitOpen)
	lease.markHeld(e.Clock.Now(), sent.Add(lease.renewalPeriod()))
	if p.maxHold > 0 {
		lease.setMaxHold(p.maxHold)
	}
	lease.schedule()
	return true
}

// observeHold tells the observer that the lease is held. The watchdog has the lease already, so it lives on for as long as that
// takes. If it is lost meanwhile, the observer hears of that at once.
func (lease *Lease) observeHold() {
	_, end := lease.attempt.p.observe(lease.ctx.parent, OpHold, lease.Key(), false, lease.FencingToken())
	if end == nil {
		return
	}
	lease.attempt.mu.Lock()
	lease.onEnd = end
	lost := lease.state == leaseLost
	out := lease.lossOutcome()
	lease.attempt.mu.Unlock()
	if lost {
		end(out)
	}
}

// lossOutcome is how a lease ended that was lost. Called with the lock.
func (lease *Lease) lossOutcome() Outcome {
	return Outcome{
		Err:    lease.lostError(OpHold, lease.lossReason),
		Reason: lease.lossReason,
		Token:  lease.FencingToken(),
	}
}

// Key returns the key; "" of a Lease that was not made by Acquire, such as nil.
func (lease *Lease) Key() string {
	if !lease.valid() {
		return ""
	}
	return lease.attempt.lock.Key
}

// FencingToken returns a number greater than every token reported for the key before this lease was requested. Pass it with
// each write to a store that rejects a token smaller than the largest it has seen. Tokens begin with the microseconds since
// 1970, so they fit a signed 64-bit column. It is 0, which no store accepts after any other, of a Lease that was not made by
// Acquire.
func (lease *Lease) FencingToken() uint64 {
	if !lease.valid() {
		return 0
	}
	return lease.attempt.token
}

// ValidUntil returns the local instant at which the context ends unless a renewal succeeds before. Until
// then nobody else holds the key; of a lease that is over it lies in the past. It carries a monotonic reading: compare it with time.Now.
// It is the zero time of a Lease that was not made by Acquire.
func (lease *Lease) ValidUntil() time.Time {
	if !lease.valid() {
		return time.Time{}
	}
	return time.Now().Add(lease.remaining())
}

// Context returns the context that ends with the lease, with cause [ErrLost] (as an *OpError that says why),
// [ErrReleased], or the cause of the context given to Acquire. It ends at ValidUntil at the latest, whatever
// the network does. After a pause or suspension past it, Err and Done of this context know at the first look,
// because they look at the clock; contexts derived from it, once its timer has fired.
func (lease *Lease) Context() context.Context {
	if !lease.valid() {
		ended, cancel := context.WithCancelCause(context.Background()) //nolint:forbidigo // it has no caller
		cancel(errNoLease)
		return ended
	}
	return &lease.ctx
}

// checkCall returns the error of a call on a lease that was not made by Acquire, or with a nil context.
func (lease *Lease) checkCall(ctx context.Context) error {
	return checkCall(ctx, lease.valid(), errNoLease)
}

// valid reports whether the lease was made by Acquire.
func (lease *Lease) valid() bool { return lease != nil && lease.attempt.e != nil }

// Lost returns why the lease ended before its holder ended it: an *OpError matching [ErrLost]; likewise where it ended
// with another lease, under which the context given to Acquire ran. It is nil while the lease is held, and of one that
// was released or completed, or ended with that context for another reason. It looks at the clock, as Context does.
func (lease *Lease) Lost() error {
	if !lease.valid() || lease.ctx.Err() == nil {
		return nil
	}
	cause, outer := context.Cause(lease.ctx.Context), lease.ctx.parent
	if !errors.Is(cause, ErrLost) {
		return nil
	}

	// The loss of another lease counts only if the context given to Acquire ran under that lease: the cause of any other
	// context may match ErrLost, too.
	op, isOpError := cause.(*OpError) //nolint:errorlint // the cause itself
	isOwn := isOpError && error(op) != context.Cause(outer)
	around, _ := FromContext(outer)
	if isOwn || around.Lost() != nil {
		return cause
	}
	return nil
}

// Extend moves the end that MaxHold has set to d from now, later or sooner, and has the lease renewed until then. No
// request is sent for it, so nil promises nothing of the nodes: the lease still ends where too few of them confirm it, and
// ValidUntil tells until when they have.
//
// It is ErrInvalid without MaxHold and for a d of 0 or less. ErrLost: the lease was lost, as far as is known; a Release may
// have found that. ErrReleased: Release or Complete was called before. If the lease has ended with the context given to
// Acquire, the error matches that of the context, and not ErrLost, whatever the cause of the context is.
func (lease *Lease) Extend(d time.Duration) error {
	switch {
	case !lease.valid():
		return errNoLease
	case lease.attempt.p.maxHold == 0:
		return fmt.Errorf(
			"lockkit: extend %q: %w: the lease has no end that could be moved: acquire it with MaxHold",
			lease.Key(), ErrInvalid,
		)
	case d <= 0:
		return fmt.Errorf("lockkit: extend %q: %w: by %v: must be more than 0", lease.Key(), ErrInvalid, d)
	}

	ended := lease.ctx.Err() // which notices the end
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	switch {
	case lease.lossReason != "":
		return lease.lostError(OpHold, lease.lossReason)
	case lease.state != leaseHeld:
		return &OpError{Op: OpHold, Key: lease.Key(), Err: ErrReleased}
	case ended != nil: // with the context that it ran under; it has not run out yet
		cause := context.Cause(lease.ctx.Context)
		return newOpError(OpHold, lease.Key(), fmt.Errorf("%w: %v", ended, cause)) //nolint:errorlint // the cause is not what ended this lease
	}
	lease.setMaxHold(d)
	lease.schedule()
	return nil
}

// FromContext returns the innermost lease that ctx runs under.
func FromContext(ctx context.Context) (*Lease, bool) {
	c, ok := ctx.Value(leaseKey{}).(*leaseContext)
	if !ok {
		return nil, false
	}
	return c.lease, true
}

type leaseKey struct{}

// A leaseContext is the context of a lease, or of a run under it. Its deadline is not the lease's: that one moves.
type leaseContext struct {
	context.Context // cancelled with the lease; nil until it is held
	parent          context.Context
	lease           *Lease
}

// Err looks at the clock, because after a pause the timer may not have fired yet.
func (c *leaseContext) Err() error {
	if c.Context.Err() == nil {
		c.lease.expire()
	}
	return c.Context.Err()
}

// Done looks at the clock as Err does.
func (c *leaseContext) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// trusted reports whether the lease is held and has time left. Called with the lock.
func (lease *Lease) isTrusted() bool { return lease.state == leaseHeld && lease.remaining() > 0 }

// wanted reports whether the context of a held lease has not ended. Called with the lock.
func (lease *Lease) isWanted() bool { return lease.ctx.Context.Err() == nil }

// heldBy is a lease of this process, to callers of this process that want its key.
type heldBy struct{ *Lease }

// InTheWay returns why they do not get the key.
func (h heldBy) InTheWay() refusal {
	return refusal{
		err:      ErrHeld,
		heldKind: HeldByOther,
		hint:     wire.ParseCarried(h.attempt.metadata).Hint,
		at:       h.attempt.e.Clock.Now(),
		retry:    max(h.keptFor(), 0),
	}
}

// expire ends a held lease that has run out. The watchdog's timer calls it, and so does every look at the lease that comes
// before the timer fires: the process may have been paused.
func (lease *Lease) expire() {
	if lease.remaining() <= 0 {
		lease.declareLost(LossExpired)
	}
}

// declareLost ends a held lease before its holder did, and reports whether it was held. It does not free the key: code that
// acts on the lease may not have noticed yet, so the nodes let the lease run out.
func (lease *Lease) declareLost(reason LossReason) bool {
	lease.attempt.mu.Lock()
	reason = lease.refineReason(reason)
	isNews := lease.markLost(reason)
	if !isNews {
		lease.attempt.mu.Unlock()
		return false
	}

	// One step under the lock: the lease's state, its context and its attempt end together. onEnd is nil until the observer
	// was told of the hold.
	out, onEnd := lease.lossOutcome(), lease.onEnd
	lease.cancelContext(out.Err)
	lease.attempt.mu.Unlock()

	// If the caller's context had ended before, the holder knows, and nothing is logged.
	parentGone := context.Cause(lease.ctx.Context) != out.Err //nolint:errorlint // the error of the lines above itself

	// The next caller of this process may ask for the key now that the context has ended.
	e := lease.attempt.e
	e.localQueue.Leave(lease.attempt.lock.Resource())

	// The timer that calls this does not wait for logger and observer, nor do these wait for each other.
	if !parentGone {
		e.Callbacks.PostAlways(new(callback.Queue), func() { lease.logLoss(reason) })
	}
	if onEnd != nil {
		e.Callbacks.PostAlways(lease.attempt.callbacks, func() { onEnd(out) })
	}
	lease.retire()
	return true
}

// endByHolder ends a lease because its holder says so. It reports whether the lease was held, and returns what its life was.
func (lease *Lease) endByHolder() (held bool, life lifecycle) {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	held = lease.markEnded()
	lease.cancelContext(ErrReleased)
	return held, lease.lifecycle
}

// cancelContext ends the lease's context together with the attempt, so that nobody sees one without the other: a renewal
// would only keep the key from others. Called with the lock.
func (lease *Lease) cancelContext(cause error) {
	if lease.cancel != nil { // else it was never held
		lease.cancel(cause)
	}
	lease.attempt.phase = attemptOver
	lease.endNow()
}

// observeEnd tells the observer that the holder has ended the lease. The observer may end the goroutine: what must happen in
// any case comes before this call, or is deferred.
func (lease *Lease) observeEnd(held bool) {
	if held && lease.onEnd != nil {
		lease.onEnd(Outcome{Err: ErrReleased, Token: lease.FencingToken()})
	}
}

// passTurn lets the next caller in line in this process have its turn, unless it has it already.
func (lease *Lease) passTurn(held, handedOn bool) {
	if held && !handedOn {
		lease.attempt.e.localQueue.Leave(lease.attempt.lock.Resource())
	}
	if held {
		lease.retire()
	}
}

// retire takes a lease that is over from the watchdog, and from what Close waits for.
func (lease *Lease) retire() {
	lease.attempt.e.watchdog.remove(lease)
	lease.attempt.e.gate.Leave()
}

// lostError is the error of an operation on a lease that is lost.
func (lease *Lease) lostError(op OpKind, reason LossReason) *OpError {
	return &OpError{Op: op, Key: lease.Key(), Err: ErrLost, Reason: reason}
}

// logLoss logs that the lease was lost, because its holder may not look.
func (lease *Lease) logLoss(reason LossReason) {
	held := lease.liveUntil.Load().Since(lease.heldSince) // a pause beyond the end does not count
	lease.attempt.p.Logger.Warn(
		"lockkit: lease lost", lease.logAttrs(),
		"token", lease.FencingToken(), "reason", string(reason), "held", held,
	)
}

// attrs names the lease's key in a log line.
func (lease *Lease) logAttrs() slog.Attr {
	name := slog.String("name", lease.attempt.p.name)
	return slog.Group("", name, slog.String("key_hash", keyHash(lease.Key())))
}
