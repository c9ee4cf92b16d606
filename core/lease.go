package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// A Lease is the exclusive right to act on a key until the lease's context ends. The watchdog renews it until it is
// released, its holder's context ends, or no quorum confirms it in time. It is safe for concurrent use.
type Lease struct {
	attempt attempt // sends the lease's requests; its lock guards lifecycle, askedNodes, proposed, renewal and onEnd
	ctx     leaseContext
	cancel  context.CancelCauseFunc

	lifecycle
	term
	askedNodes quorum.Set    // nodes that were sent a request, and may have the lease
	proposed   *wire.Record  // by the first Complete
	renewal    *renewal      // in progress; nil = none
	onEnd      func(Outcome) // ends the observer's OpHold; nil before its start, and without an observer
	isToldOf   atomic.Bool   // observers are told of the lease

	callbacks callback.Queue // used by the call if this is its first attempt

	// The watchdog's lock guards these fields.
	inspectAt clock.Instant
	heapIndex int // in watchdog.leases
}

// start turns the attempt into a lease, given the votes of the round that asked for the key and the time at which
// that round began. start reports false if no trusted time is left, or if the Locker is closing.
func (lease *Lease) start(t *quorum.Tally, sent clock.Instant) bool {
	lease.extendTrust(sent, lease.attempt.p)
	if lease.remaining() <= 0 {
		return false
	}

	// The caller's context may be user code, so the lock is not held here. A lease of a set has the context of the set.
	isAlone := lease.ctx.Context == nil
	if isAlone {
		lease.ctx.Context, lease.cancel = context.WithCancelCause(lease.ctx.parent)
	}
	held := lease.register(t, sent)
	if !held && isAlone {
		lease.attempt.p.cancelContext(lease.cancel, ErrClosed)
	}
	return held
}

// register hands the lease to the watchdog, unless the Locker is closing.
func (lease *Lease) register(t *quorum.Tally, sent clock.Instant) bool {
	e, p := lease.attempt.e, lease.attempt.p
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	admitted := e.watchdog.add(lease, &e.gate)
	if !admitted {
		return false
	}

	// From here on the watchdog and Close know the lease. Neither acts on it before the lock is released.
	e.localQueue.SetHolder(lease.attempt.lock.Resource(), heldBy{lease})
	lease.attempt.becomeLease()
	lease.askedNodes = t.Asked &^ t.WithVerdict(wire.CircuitOpen)
	lease.markHeld(e.Clock.Now(), sent.Add(lease.renewalPeriod()))
	if p.maxHold > 0 {
		lease.setMaxHold(p.maxHold)
	}
	lease.schedule()
	return true
}

// observeHold reports the hold to the observer. The watchdog already has the lease and renews it, however long the
// observer takes. If the lease is lost before the observer returns, the loss is reported right after it.
func (lease *Lease) observeHold() {
	lease.isToldOf.Store(true)
	_, end := lease.attempt.observe(lease.ctx.parent, OpHold)
	if end != nil {
		lease.observeEndBy(end)
	}
}

// observeEndBy makes the end of the lease call end, at once if the lease was lost before.
func (lease *Lease) observeEndBy(end func(Outcome)) {
	lease.attempt.mu.Lock()
	lease.onEnd = end
	lost := lease.state == leaseLost
	out := lease.lossOutcome()
	lease.attempt.mu.Unlock()

	if lost {
		end(out)
	}
}

// lossOutcome returns the outcome of a lost lease. The lease's lock must be held.
func (lease *Lease) lossOutcome() Outcome {
	return Outcome{
		Err:    lease.lostError(OpHold, lease.lossReason),
		Reason: lease.lossReason,
		Token:  lease.FencingToken(),
	}
}

// Key returns the key. It returns "" if the Lease is nil or was not made by Acquire.
func (lease *Lease) Key() string {
	if !lease.valid() {
		return ""
	}
	return lease.attempt.lock.Key
}

// KeyPrefix returns the prefix of the Locker that acquired the lease: see WithKeyPrefix. It returns "" if the Lease was
// not made by Acquire.
func (lease *Lease) KeyPrefix() string {
	if !lease.valid() {
		return ""
	}
	return lease.attempt.p.Prefix
}

// FencingToken returns a number greater than every token reported for the key before this lease was requested. Pass
// it with each write to a store that rejects a token smaller than the largest it has seen. Tokens begin with the
// microseconds since 1970, so they fit a signed 64-bit column. If the Lease was not made by Acquire, FencingToken
// returns 0, which no store accepts after any other token.
func (lease *Lease) FencingToken() uint64 {
	if !lease.valid() {
		return 0
	}
	return lease.attempt.token
}

// ValidUntil returns the local time at which the context ends unless a renewal succeeds before. Until then no other
// caller holds the key. After the end of the lease it is in the past. It has a monotonic reading: compare it with
// time.Now. If the Lease was not made by Acquire, ValidUntil returns the zero time.
func (lease *Lease) ValidUntil() time.Time {
	if !lease.valid() {
		return time.Time{}
	}
	return time.Now().Add(lease.remaining())
}

// Context returns the context that ends with the lease. Its cause is [ErrLost] (as an *OpError that says why),
// [ErrReleased], or the cause of the context given to Acquire. It ends at ValidUntil at the latest, even if the network
// fails. If the process was paused or suspended past that time, Err and Done of this context report the end at once,
// because they read the clock. Contexts derived from it end when its timer fires.
func (lease *Lease) Context() context.Context {
	if !lease.valid() {
		ended, cancel := context.WithCancelCause(context.Background()) //nolint:forbidigo // there is no caller
		cancel(errNoLease)
		return ended
	}
	return &lease.ctx
}

var errNoLease = fmt.Errorf("lockkit: %w: the Lease was not made by Acquire", ErrInvalid)

// checkCall returns an error if the lease was not made by Acquire, or if the context is nil.
func (lease *Lease) checkCall(ctx context.Context) error {
	return checkCall(ctx, lease.valid(), errNoLease)
}

// valid reports whether the lease was made by Acquire.
func (lease *Lease) valid() bool {
	return lease != nil && lease.attempt.e != nil
}

// Lost returns why the lease ended before its holder ended it: an *OpError matching [ErrLost]. The same holds if it
// ended together with another lease, under which the context given to Acquire ran. Lost returns nil while the lease
// is held, and if the lease was released or completed, or ended with that context for another reason. Lost reads the
// clock, as Context does.
func (lease *Lease) Lost() error {
	if !lease.valid() || lease.ctx.Err() == nil {
		return nil
	}
	cause, outer := context.Cause(lease.ctx.Context), lease.ctx.parent
	if !errors.Is(cause, ErrLost) {
		return nil
	}

	// The loss of another lease counts only if the context given to Acquire ran under that lease: the cause of any
	// other context may match ErrLost, too.
	op, isOpError := cause.(*OpError)                       //nolint:errorlint // the cause itself
	isOwn := isOpError && error(op) != context.Cause(outer) //nolint:errorlint // the very same error
	around := leaseContextOf(outer)
	endedWithOuter := around != nil && around.lease.Lost() != nil
	if isOwn || endedWithOuter {
		return cause
	}
	return nil
}

// Extend moves the end that MaxHold has set to d from now, later or sooner, and makes the watchdog renew the lease
// until then. No request is sent, so a nil error promises nothing about the nodes: the lease still ends if too few of
// them confirm it, and ValidUntil returns the time until which they have.
//
// The error matches ErrInvalid without MaxHold, and if d is 0 or less. ErrLost: the lease was lost, as far as is
// known; a Release may have found that. ErrReleased: Release or Complete was called before. If the lease has ended
// with the context given to Acquire, the error matches the error of that context, and not ErrLost, whatever the cause
// of the context is.
func (lease *Lease) Extend(d time.Duration) error {
	switch {
	case !lease.valid():
		return errNoLease
	case !lease.hasMaxHold():
		return fmt.Errorf(
			"lockkit: extend %q: %w: the lease has no end that could be moved: acquire it with MaxHold",
			lease.Key(), ErrInvalid,
		)
	case d <= 0:
		return fmt.Errorf("lockkit: extend %q: %w: by %v: must be more than 0", lease.Key(), ErrInvalid, d)
	}

	ended := lease.ctx.Err() // reads the clock, so that a lease whose time is over is lost before its state is read
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	switch {
	case lease.lossReason != "":
		return lease.lostError(OpHold, lease.lossReason)
	case lease.state != leaseHeld:
		return &OpError{Op: OpHold, Key: lease.Key(), Err: ErrReleased}
	case ended != nil: // the lease ended with the context given to Acquire, and has not run out yet
		cause := context.Cause(lease.ctx.Context)
		err := fmt.Errorf("%w: %v", ended, cause) //nolint:errorlint // the error must not match the cause
		return newOpError(OpHold, lease.Key(), err)
	}

	lease.setMaxHold(d)
	lease.schedule()
	return nil
}

// startMaxHold sets the end of a held lease of a set, d from now.
func (lease *Lease) startMaxHold(d time.Duration) {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	if lease.state == leaseHeld {
		lease.setMaxHold(d)
		lease.schedule()
	}
}

// hasMaxHold reports whether MaxHold has set an end.
func (lease *Lease) hasMaxHold() bool {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	return lease.isHoldSet
}

// isTrusted reports whether the lease is held and neither its trust nor MaxHold has ended. The lease's lock must be held.
func (lease *Lease) isTrusted() bool {
	return lease.state == leaseHeld && lease.remaining() > 0
}

// isWanted reports whether the context of a held lease is live. The lease's lock must be held.
func (lease *Lease) isWanted() bool {
	return lease.ctx.Context.Err() == nil
}

// A heldBy is a lease as a holder in the local queue.
type heldBy struct{ *Lease }

// Refusal returns the refusal for other callers of this process.
func (h heldBy) Refusal() refusal {
	return refusal{
		err:      ErrHeld,
		heldKind: HeldByOther,
		hint:     wire.ParseCarried(h.attempt.metadata).Hint,
		at:       h.attempt.e.Clock.Now(),
		retry:    max(h.keptFor(), 0),
	}
}

// expire ends a held lease whose time is over. The watchdog's timer calls it. Every use of the lease calls it, too,
// because the process may have been paused and the timer may not have fired yet.
func (lease *Lease) expire() {
	if lease.remaining() <= 0 {
		lease.declareLost(LossExpired)
	}
}

// declareLost ends a held lease before its holder did, and reports whether it was held. It does not release the key:
// the holder may still be working, so the nodes keep the key until the TTL ends.
func (lease *Lease) declareLost(reason LossReason) bool {
	lease.attempt.mu.Lock()
	reason = lease.refineReason(reason)
	isNews := lease.markLost(reason)
	if !isNews {
		lease.attempt.mu.Unlock()
		return false
	}

	// The lease's state, its context and its attempt end under one lock, so that no goroutine sees one without the
	// others. onEnd is nil until the observer was told of the hold.
	out, onEnd := lease.lossOutcome(), lease.onEnd
	lease.cancelAttempt(out.Err)
	lease.attempt.mu.Unlock()

	// If the caller's context had ended before, the holder knows, and nothing is logged.
	parentGone := context.Cause(lease.ctx.Context) != out.Err //nolint:errorlint // the error of the lines above itself

	// The next caller of this process may ask for the key now that the context has ended.
	e := lease.attempt.e
	e.localQueue.PassOn(lease.attempt.lock.Resource())

	// The timer that calls declareLost does not wait for the logger or the observer, and neither waits for the other.
	if !parentGone {
		e.Callbacks.PostAlways(new(callback.Queue), func() { lease.logLoss(reason) })
	}
	if onEnd != nil {
		e.Callbacks.PostAlways(lease.attempt.callbacks, func() { onEnd(out) })
	}

	// The lease is retired last: when Close stops waiting for it, all its callbacks have been posted.
	lease.retire()
	return true
}

// endByHolder ends the lease on behalf of its holder. It reports whether the lease was held, and returns its lifecycle.
func (lease *Lease) endByHolder() (held bool, life lifecycle) {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	held = lease.markEnded()
	lease.cancelAttempt(ErrReleased)
	return held, lease.lifecycle
}

// cancelAttempt ends the attempt together with the lease's context. If the attempt lived on, a renewal would keep the
// key from others for nothing. The lease's lock must be held.
func (lease *Lease) cancelAttempt(cause error) {
	lease.attempt.phase = attemptOver
	lease.endNow()
	if lease.cancel != nil { // nil: the lease was never held
		lease.attempt.p.cancelContext(lease.cancel, cause)
	}
}

// cancelContext ends the context of a lease or of a set of leases. To remove it from the context that the caller gave,
// package context calls methods of that one, which may be code of the application. If they panic, that is logged, and
// the lease ends all the same.
func (p *policy) cancelContext(cancel context.CancelCauseFunc, cause error) {
	callback.Call(p.Logger, "the context given to Acquire", func() { cancel(cause) })
}

// observeEnd reports to the observer that the holder has ended the lease. The observer may end the goroutine, so the
// steps that must happen in any case come before this call or are deferred.
func (lease *Lease) observeEnd(held bool) {
	if held && lease.onEnd != nil {
		lease.onEnd(Outcome{Err: ErrReleased, Token: lease.FencingToken()})
	}
}

// passTurn lets the next caller of this process have the turn, unless it has it already, and retires the lease.
func (lease *Lease) passTurn(held, handedOn bool) {
	if held && !handedOn {
		lease.attempt.e.localQueue.PassOn(lease.attempt.lock.Resource())
	}
	if held {
		lease.retire()
	}
}

// retire removes an ended lease from the watchdog, and from the leases that Close waits for.
func (lease *Lease) retire() {
	lease.attempt.e.watchdog.remove(lease)
	lease.attempt.e.gate.Leave()
}

// lostError returns the error of an operation on a lost lease.
func (lease *Lease) lostError(op OpKind, reason LossReason) *OpError {
	return &OpError{Op: op, Key: lease.Key(), Err: ErrLost, Reason: reason}
}

// logLoss logs the loss of the lease. The holder may not look at it.
func (lease *Lease) logLoss(reason LossReason) {
	held := lease.liveUntil.Load().Since(lease.heldSince) // a pause beyond the end does not count
	lease.attempt.p.Logger.Warn(
		"lockkit: lease lost", lease.logAttrs(),
		"token", lease.FencingToken(), "reason", string(reason), "held", held,
	)
}

// logAttrs returns the attributes that name the lease's key in a log line.
func (lease *Lease) logAttrs() slog.Attr {
	name := slog.String("name", lease.attempt.p.name)
	return slog.Group("", name, slog.String("key_hash", keyHash(lease.Key())))
}

// FromContext returns the innermost lease that ctx runs under. It passes over permits of semaphores (core/semaphore),
// because the holder of a permit is not alone: neither is its token greater than that of every other holder, nor may it
// complete the key.
func FromContext(ctx context.Context) (*Lease, bool) {
	for c := leaseContextOf(ctx); c != nil; c = leaseContextOf(c.parent) {
		if !c.lease.attempt.p.isSlot() {
			return c.lease, true
		}
	}
	return nil, false
}

// leaseContextOf returns the innermost leaseContext in ctx; nil if there is none.
func leaseContextOf(ctx context.Context) *leaseContext {
	c, _ := ctx.Value(leaseKey{}).(*leaseContext)
	return c
}

// leaseKey is the key under which a leaseContext returns itself.
type leaseKey struct{}

// A leaseContext is the context of a lease, or of a run under it. It has no deadline of the lease, because that one
// moves.
type leaseContext struct {
	context.Context // cancelled with the lease, or with the set of leases; nil until the lease is held, except in a set
	parent          context.Context
	lease           *Lease
}

// Err reads the clock, because the timer may not have fired yet after a pause.
func (c *leaseContext) Err() error {
	if c.Context.Err() == nil {
		c.lease.expire()
	}
	return c.Context.Err()
}

// Done reads the clock as Err does.
func (c *leaseContext) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}

// Value returns c for leaseKey, so that FromContext and Holding find the lease.
func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}
