package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/internal/join"
)

// Do runs fn while holding key. It waits for key as Acquire does, and releases it when fn returns or panics. fn runs
// on the caller's goroutine with the context of the lease, which ends with cause ErrLost when fn must stop acting.
//
// The error is the error of fn or of Acquire. If the lease was lost while fn ran, or if a Complete that fn called was
// refused with ErrLost, the error also matches ErrLost, even if fn returned nil. A release that could not be
// confirmed is not an error of Do: it is logged, and the key frees itself. The options apply to this call, as in
// Acquire.
//
// If ctx runs under a lease on key, the error matches ErrHeld at once, unless [Reentrant] says otherwise.
func (l *Locker) Do(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...CallOption) error {
	return l.do(ctx, key, false, fn, opts)
}

// TryDo is Do without waiting, as TryAcquire is to Acquire.
func (l *Locker) TryDo(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...CallOption) error {
	return l.do(ctx, key, true, fn, opts)
}

// do is Do, or TryDo if try.
func (l *Locker) do(
	ctx context.Context, key string, try bool, fn func(context.Context) error, opts []CallOption,
) (err error) {
	if fn == nil {
		return errNoFunction
	}
	p, err := l.policyForCall(ctx, key, opts)
	if err != nil {
		return err
	}
	if outer, held := l.Holding(ctx, key); held && p.reentrant {
		return runNested(ctx, outer, fn)
	}
	lease, err := l.acquireAs(ctx, key, try, p, errNotReentrant)
	if err != nil {
		return err
	}
	defer func() { err = releaseAfter(ctx, lease, err) }()
	return fn(&lease.ctx)
}

// runNested runs fn under a lease under which ctx already runs. The caller that acquired the lease releases it.
func runNested(ctx context.Context, lease *Lease, fn func(context.Context) error) error {
	if ctx.Err() != nil {
		return newOpError(OpAcquire, lease.Key(), contextError(ctx))
	}

	// ctx may have been cut off from the end of the lease.
	joint, stop := join.Contexts(ctx, &lease.ctx)
	defer stop()
	err := fn(&leaseContext{Context: joint, parent: ctx, lease: lease})

	loss := cmp.Or(lease.Lost(), lease.refusedCompletion())
	if loss != nil {
		cancelled := ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrLost)
		return joinLoss(err, loss, cancelled)
	}
	return err
}

// releaseAfter releases the lease, and joins the error of the function that ran under it with the error of a loss.
func releaseAfter(ctx context.Context, lease *Lease, err error) error {
	released := lease.Release(ctx)
	if errors.Is(released, ErrLost) {
		return joinLoss(err, released, lease.ctx.parent.Err() != nil)
	}
	return err
}

// joinLoss joins the error of fn with the error of a loss. If the caller has not cancelled, but fn returned the
// context.Canceled of its own context, the joined error does not match it: the call must not look cancelled.
func joinLoss(err, loss error, cancelled bool) error {
	if errors.Is(err, context.Canceled) && !cancelled {
		return fmt.Errorf("%w: %v", loss, err) //nolint:errorlint // only its text
	}
	return errors.Join(err, loss)
}

// Once runs fn under key unless key is recorded as done. When fn returns nil, the record is written together with the
// release. If key is done, the error matches ErrDone and carries the record. fn may write the record, with a result, by
// calling Complete on the lease of its context; OnceResult does that for it.
//
// If ctx does not name the work that is done in it ([Locker.WithWork]), the context of fn names it: by the key prefix and
// the key. Several calls under one named work, such as in a handler of an adapter, are the same work for package fence: name
// each of them by WithWork.
//
// If fn returns an error, the key is released, nothing is recorded, and Once returns that error. If fn returns nil
// but the record could not be written, the error is the error of Complete. With ErrLost, another caller may have run
// fn since (and this run may still come to count). With ErrUnavailable, it is open whether the run counts: the next
// caller for the key either gets ErrDone or runs fn again.
//
// Once tries to write the record for as long as a TTL. The deadline of ctx ends that, too, unless [Detached] is set:
// Once returns within a node timeout of the deadline, and if fn returns later, Once tries once. A caller that only
// cancels ctx may go while the work is done, so Once then tries for another ten seconds, and for a TTL if that is
// less.
//
// The effects of fn happen once only if fn passes the fencing token to the store that it changes, or is idempotent:
// if a process dies after the work but before recording it, the work is repeated. The options apply to this call, as
// in Acquire.
func (l *Locker) Once(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...CallOption) error {
	if fn == nil {
		return errNoFunction
	}
	lease, err := l.acquire(ctx, key, false, opts)
	if err != nil {
		return err
	}
	_, err = runOnce(ctx, lease, func(ctx context.Context) ([]byte, error) { return nil, fn(ctx) })
	return err
}

// OnceResult is Once for work that has a result of at most 64 KiB. The result of fn is recorded. OnceResult returns
// it with a nil error, to this caller and to all callers in any process that ask for the key within the retention. If
// the error is not nil, the result is the value that fn returned, recorded or not.
func (l *Locker) OnceResult(ctx context.Context, key string, fn func(ctx context.Context) ([]byte, error), opts ...CallOption) ([]byte, error) {
	if fn == nil {
		return nil, errNoFunction
	}
	lease, err := l.acquire(ctx, key, false, opts)
	op, isOpError := err.(*OpError)     //nolint:errorlint // acquire does not wrap it
	if isOpError && op.Err == ErrDone { //nolint:errorlint // Err is the sentinel itself
		return op.Record.Result, nil
	}
	if err != nil {
		return nil, err
	}
	return runOnce(ctx, lease, fn)
}

// runOnce runs fn under the lease, and ends the lease: by a completion if fn succeeds, or else by a release.
func runOnce(
	ctx context.Context, lease *Lease, fn func(ctx context.Context) ([]byte, error),
) (result []byte, err error) {
	isEnded := false
	defer func() {
		if !isEnded { // fn panicked, or its result is too large
			lease.Release(ctx)
		}
	}()
	result, err = fn(workContext(lease))

	// fn itself may have completed the lease.
	_, completed := lease.recordedResult()
	switch {
	case completed:
	case err != nil:
		err = releaseAfter(ctx, lease, err)
	default:
		err = recordResult(ctx, lease, result)
		if errors.Is(err, ErrInvalid) {
			return result, err
		}
	}

	// fn may have begun to record another result, which then counts.
	if recorded, completed := lease.recordedResult(); completed {
		result = recorded
	}
	isEnded = true
	return result, err
}

// recordAfterCancel is how long Once goes on trying to write the record after its caller has cancelled.
const recordAfterCancel = 10 * time.Second

// recordResult completes the lease for the caller of Once, whose context may have ended. It repeats the completion
// while too few nodes answer.
func recordResult(ctx context.Context, lease *Lease, result []byte) error {
	p, e := lease.attempt.p, lease.attempt.e

	// A cancelled ctx does not stop the attempts to record, but its deadline does, unless the lease is detached from
	// it.
	recordCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), p.ttl)
	defer stop()
	until, bounded := ctx.Deadline()
	if bounded && !p.detached {
		var end context.CancelFunc
		recordCtx, end = context.WithDeadline(recordCtx, until)
		defer end()
	}

	err := lease.completeOnce(recordCtx, result)

	// cancelledAt is when this loop first saw that the caller has gone.
	cancelledAt := clock.Never
	for errors.Is(err, ErrUnavailable) && lease.pauseBeforeRetry(recordCtx) {
		now := e.Clock.Now()
		if ctx.Err() != nil {
			cancelledAt = min(cancelledAt, now)
		}
		if now.Since(cancelledAt) >= recordAfterCancel {
			break
		}
		err = lease.completeOnce(recordCtx, result)
	}
	return err
}
