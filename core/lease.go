package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Lease is the right to act alone on a key until its context ends. The watchdog renews it until it is
// released, its holder's context ends, or no quorum confirms it in time. It is safe for concurrent use.
type Lease struct {
	e       *engine
	bucket  *node.Bucket // of its key
	p       *policy
	lock    wire.Lock
	carries string
	waits   bool          // it is of a call that waits
	wait    *queue.Waiter // that call, once an attempt before has failed; nil = it is called as this one
	asked   wire.Stamp    // when the key was asked for last
	ctx     leaseContext
	cancel  context.CancelCauseFunc

	// until is when the context ends unless a renewal succeeds: the earlier of trustedUntil and holdUntil. Read
	// without the lock, because looking at a context must not wait.
	until clock.AtomicInstant
	kept  clock.AtomicInstant // until when the nodes keep the key if the holder vanishes
	// notBefore is when somebody gets the key at the earliest, because of Cooldown; 0 = there is none. Read without the lock.
	notBefore clock.AtomicInstant

	mu         sync.Mutex
	ended      bool // nothing of it may be sent any more but its end
	token      uint64
	nodes      []nodeState
	only       [1]nodeState // room for one
	reached    quorum.Set   // once it is granted: nodes that were sent anything; they may have it
	proposed   *wire.Record // by the first Complete
	completing bool         // some node was sent a completion under its token
	queued     bool         // some node has the call in its queue
	quits      bool         // the call has ended
	seen       bool         // a quorum may have granted it, so others may have seen its token
	lifecycle
	renewing *renewal // under way
	onEnd    func(Outcome)

	// Guarded by the watchdog's lock.
	lookAt clock.Instant
	place  int // in its heap
}

// attrs names the lease's key in a log line.
func (lease *Lease) attrs() slog.Attr {
	return slog.Group("", slog.String("name", lease.p.name), slog.String("key_hash", keyHash(lease.lock.Key)))
}

// cooldownLeft is what is left of the cooldown of a lease that was released with one.
func (lease *Lease) cooldownLeft() time.Duration {
	return max(lease.notBefore.Load().Since(lease.e.Clock.Now()), 0)
}

// trust sets how long the lease may be trusted when a request was sent at that time. It never takes trust back, and
// lifts no end that MaxHold has set.
func (lease *Lease) trust(sent clock.Instant) {
	lease.trustedUntil = max(lease.trustedUntil, sent.Add(lease.p.validity-lease.p.margin))
	lease.until.Store(lease.endsAt())
	lease.kept.Store(max(lease.kept.Load(), sent.Add(lease.p.ttl)))
}

// holdFor has the lease end that long from now, or when its trust does. Called with the lock.
func (lease *Lease) holdFor(d time.Duration) {
	lease.holdUntil = lease.e.Clock.Now().Add(d)
	lease.until.Store(lease.endsAt())
}

// left is for how long the lease can still be trusted.
func (lease *Lease) left() time.Duration { return lease.until.Load().Since(lease.e.Clock.Now()) }

// blocking is a lease to who asks for its key.
type blocking struct{ *Lease }

// InTheWay is why they do not have it.
func (b blocking) InTheWay() result {
	return result{err: ErrHeld, held: HeldByOther, hint: wire.ParseCarried(b.carries).Hint, at: b.e.Clock.Now(), retry: max(b.freedAfter(), 0)}
}

// freedAfter is how long the nodes keep the key if its holder vanishes now.
func (lease *Lease) freedAfter() time.Duration {
	return max(lease.kept.Load(), lease.notBefore.Load()).Since(lease.e.Clock.Now())
}

// start turns the attempt, whose requests were sent at that time, into a lease, if there is trusted time left
// and the Locker is not closing.
func (lease *Lease) start(t *quorum.Tally, sent clock.Instant) bool {
	lease.holdUntil = clock.Never
	lease.trust(sent)
	if lease.left() <= 0 {
		return false
	}
	_, lease.onEnd = lease.p.observe(lease.ctx.parent, OpHold, lease.lock.Key, false, lease.token)
	held := lease.begin(t, sent)
	if !held && lease.onEnd != nil {
		lease.onEnd(Outcome{Err: ErrClosed, Token: lease.token})
	}
	return held
}

func (lease *Lease) begin(t *quorum.Tally, sent clock.Instant) bool {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if !lease.e.watchdog.add(lease, &lease.e.gate) {
		return false
	}
	lease.e.lines.Holds(lease.lock.Resource(), blocking{lease})
	lease.reached = t.Asked &^ t.With(wire.CircuitOpen)
	lease.held(lease.e.Clock.Now(), sent.Add(lease.renewalPeriod()))
	if lease.p.maxHold > 0 {
		lease.holdFor(lease.p.maxHold)
	}
	lease.ctx.Context, lease.cancel = context.WithCancelCause(lease.ctx.parent)
	lease.plan()
	return true
}

// Key returns the key.
func (lease *Lease) Key() string { return lease.lock.Key }

// FencingToken returns a number greater than every token reported for the key before this lease was requested. Pass it with
// each write to a store that rejects a token smaller than the largest it has seen. Tokens begin with the microseconds since
// 1970, so they fit a signed 64-bit column.
func (lease *Lease) FencingToken() uint64 { return lease.token }

// ValidUntil returns the local instant at which the context ends unless a renewal succeeds before. Until
// then nobody else holds the key; of a lease that is over it lies in the past. It carries a monotonic reading: compare it with time.Now.
func (lease *Lease) ValidUntil() time.Time { return time.Now().Add(lease.left()) }

// Context returns the context that ends with the lease, with cause [ErrLost] (as an *OpError that says why),
// [ErrReleased], or the cause of the context given to Acquire. It ends at ValidUntil at the latest, whatever
// the network does. After a pause or suspension past it, Err and Done of this context know at the first look,
// because they look at the clock; contexts derived from it, once its timer has fired.
func (lease *Lease) Context() context.Context {
	if !lease.made() {
		ended, cancel := context.WithCancelCause(context.Background()) //nolint:forbidigo // it has no caller
		cancel(errNoLease)
		return ended
	}
	return &lease.ctx
}

func (lease *Lease) fit(ctx context.Context) error { return fit(ctx, lease.made(), errNoLease) }

func (lease *Lease) made() bool { return lease != nil && lease.e != nil }

// Lost returns why the lease ended before its holder ended it: an *OpError matching [ErrLost]; likewise where it ended
// with another lease, under which the context given to Acquire ran. It is nil while the lease is held, and of one that
// was released or completed, or ended with that context for another reason. It looks at the clock, as Context does.
func (lease *Lease) Lost() error {
	if !lease.made() || lease.ctx.Err() == nil {
		return nil
	}
	cause, outer := context.Cause(lease.ctx.Context), lease.ctx.parent
	op, own := cause.(*OpError) //nolint:errorlint // this very error
	own = own && error(op) != context.Cause(outer)
	if around, _ := FromContext(outer); errors.Is(cause, ErrLost) && (own || around.Lost() != nil) {
		return cause
	}
	return nil
}

// FromContext returns the innermost lease that ctx runs under.
func FromContext(ctx context.Context) (*Lease, bool) {
	if c, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		return c.lease, true
	}
	return nil, false
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

// expire ends a held lease that has run out. Its timer calls it, and whoever looks at the lease sooner than the timer:
// the process may have been paused.
func (lease *Lease) expire() {
	if lease.left() <= 0 {
		lease.lose(LossExpired)
	}
}

// lose ends a held lease before its holder did, and reports whether it was held. It does not free the key: whoever acted on it may not have
// noticed yet, and the nodes let it run out.
func (lease *Lease) lose(reason LossReason) bool {
	lease.mu.Lock()
	reason, was := lease.lost(reason)
	if !was {
		lease.mu.Unlock()
		return false
	}
	ended, err := lease.onEnd, lease.loss(OpHold, reason)
	lease.stop(err)
	lease.mu.Unlock()

	parentGone := context.Cause(lease.ctx.Context) != error(err) //nolint:errorlint // this very error
	e := lease.e
	e.lines.Leave(lease.lock.Resource())
	// The observer and the logger are the user's code: the timer that calls this must not wait for them.
	e.Tasks.Go(func() {
		if !parentGone {
			lease.logLoss(reason)
		}
		if ended != nil {
			ended(Outcome{Err: err, Reason: reason, Token: lease.token})
		}
	})
	e.retire(lease)
	return true
}

// logLoss says that a lease was lost, which its holder may not look for.
func (lease *Lease) logLoss(reason LossReason) {
	held := lease.until.Load().Since(lease.since) // not a pause beyond it
	lease.p.Logger.Warn("lockkit: lease lost", lease.attrs(), "token", lease.token, "reason", string(reason), "held", held)
}

// stop ends the lease's context with the lease, so that nobody sees one without the other: nothing is sent any more but its
// end, for a renewal would only keep the key from others. Called with the lock.
func (lease *Lease) stop(cause error) {
	if lease.cancel != nil { // else it was never held
		lease.cancel(cause)
	}
	lease.ended = true
	lease.until.Store(min(lease.until.Load(), lease.e.Clock.Now()))
}

// loss is the error of an operation on the lease, once it is lost.
func (lease *Lease) loss(op OpKind, reason LossReason) *OpError {
	return &OpError{Op: op, Key: lease.lock.Key, Err: ErrLost, Reason: reason}
}

// end ends a lease because its holder says so, and reports whether it was held, and what its life was.
func (lease *Lease) end() (held bool, life lifecycle) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	held = lease.finish()
	lease.stop(ErrReleased)
	return held, lease.lifecycle
}

// tellEnd tells the observer that the holder has ended the lease. It is the user's code: whatever must
// happen comes before, or is deferred.
func (lease *Lease) tellEnd(held bool) {
	if held && lease.onEnd != nil {
		lease.onEnd(Outcome{Err: ErrReleased, Token: lease.token})
	}
}

// Extend moves the end that MaxHold has set to d from now, later or sooner, and has the lease renewed until then. No
// request is sent for it, so nil promises nothing of the nodes: the lease still ends where too few of them confirm it, and
// ValidUntil tells until when they have.
//
// It is ErrInvalid without MaxHold and for a d of 0 or less. ErrLost: the lease has ended. ErrReleased: Release or Complete
// was called before. If the lease has ended with the context given to Acquire, the error matches that of the context.
func (lease *Lease) Extend(d time.Duration) error {
	switch {
	case !lease.made():
		return errNoLease
	case lease.p.maxHold == 0:
		return fmt.Errorf("lockkit: extend %q: %w: the lease has no end that could be moved: acquire it with MaxHold", lease.lock.Key, ErrInvalid)
	case d <= 0:
		return fmt.Errorf("lockkit: extend %q: %w: by %v: must be more than 0", lease.lock.Key, ErrInvalid, d)
	}
	ended := lease.ctx.Err() // which notices the end
	lease.mu.Lock()
	defer lease.mu.Unlock()
	switch {
	case lease.reason != "":
		return lease.loss(OpHold, lease.reason)
	case lease.state != leaseHeld:
		return &OpError{Op: OpHold, Key: lease.lock.Key, Err: ErrReleased}
	case ended != nil: // with the context that it ran under; it has not run out yet
		return &OpError{Op: OpHold, Key: lease.lock.Key, Err: fmt.Errorf("%w: %v", ended, context.Cause(lease.ctx.Context))} //nolint:errorlint // the cause is not what ended this lease
	}
	lease.holdFor(d)
	lease.plan()
	return nil
}
