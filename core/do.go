package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Do runs fn while holding key, waiting for it as Acquire does, and releases it when fn has returned, also
// by a panic. fn runs on the caller's goroutine with the context of the lease, which ends with cause
// ErrLost when fn must stop acting.
//
// The error is fn's, or that of Acquire. If the lease was lost while fn ran, it also matches ErrLost, even
// if fn returned nil. A release that could not be confirmed is no error of Do: it is logged, and the key
// frees itself. Options are for this call, as in Acquire.
func (l *Locker) Do(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...Option) error {
	lease, err := l.acquire(ctx, key, false, opts)
	if err != nil {
		return err
	}
	return lease.do(fn)
}

// TryDo is Do without waiting, as TryAcquire is to Acquire.
func (l *Locker) TryDo(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...Option) error {
	lease, err := l.acquire(ctx, key, true, opts)
	if err != nil {
		return err
	}
	return lease.do(fn)
}

func (lease *Lease) do(fn func(context.Context) error) (err error) {
	defer func() {
		if rerr := lease.Release(lease.ctx.parent); errors.Is(rerr, ErrLost) {
			err = lease.joinLoss(err, rerr)
		}
	}()
	return fn(&lease.ctx)
}

// joinLoss joins the error of fn with that of the loss. If fn only passes on that its context ended, its
// error does not make it look as if the caller had cancelled.
func (lease *Lease) joinLoss(err, loss error) error {
	if errors.Is(err, context.Canceled) && lease.ctx.parent.Err() == nil {
		return fmt.Errorf("%w: %v", loss, err)
	}
	return errors.Join(err, loss)
}

// Once runs fn under key unless key is recorded as done; when fn returns nil, the record is written with the
// release. A key that is done is an error matching ErrDone that carries the record. fn may write the record
// itself, with a result, by calling Complete on the lease of its context.
//
// If fn returns an error, the key is released, nothing is recorded, and that is the error. If fn returns nil
// but the record could not be written, the error is that of Complete: with ErrLost somebody else may have
// run fn meanwhile (and this run may still come to count), with ErrUnavailable the next caller finds out. The
// effects of fn happen once only where fn hands the fencing token to what it changes, or is idempotent: a
// process that dies between the two leaves the work done and unrecorded. Options are for this call, as in Acquire.
func (l *Locker) Once(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...Option) error {
	lease, err := l.acquire(ctx, key, false, opts)
	if err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // fn panicked
			lease.Release(ctx)
		}
	}()
	err = fn(&lease.ctx)
	ended = true
	if lease.isCompleted() { // by fn itself
		return err
	}
	if err != nil {
		if rerr := lease.Release(ctx); errors.Is(rerr, ErrLost) {
			err = lease.joinLoss(err, rerr)
		}
		return err
	}
	return lease.completeSurely(ctx)
}

// completeSurely repeats Complete while its outcome is open, for about a TTL: fn's work is worth more than
// the caller's time.
func (lease *Lease) completeSurely(ctx context.Context) error {
	p := lease.p
	deadline := lease.e.clock.now() + p.ttl
	for {
		err := lease.Complete(ctx, nil)
		if !errors.Is(err, ErrUnavailable) || lease.e.clock.now() >= deadline {
			return err
		}
		pause := time.NewTimer(p.retryMax)
		select {
		case <-pause.C:
		case <-lease.e.closing:
			pause.Stop()
			return err
		}
	}
}

// isOver reports whether a quorum has confirmed the end.
func (lease *Lease) isOver() bool {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	return lease.completed || lease.freed
}

func (lease *Lease) isCompleted() bool {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	return lease.completed
}
