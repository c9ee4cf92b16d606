package core

import (
	"context"
	"fmt"
	"time"
)

// Extend moves the end that MaxHold has set to d from now, later or sooner, and has the lease renewed until then. No
// request is sent for it, so nil promises nothing of the nodes: the lease still ends where too few of them confirm it, and
// ValidUntil tells until when they have.
//
// It is ErrInvalid without MaxHold and for a d of 0 or less. ErrLost: the lease has ended. ErrReleased: Release or Complete
// was called before. If the lease has ended with the context given to Acquire, the error matches that of the context.
func (lease *Lease) Extend(d time.Duration) error {
	switch {
	case lease == nil || lease.engine == nil:
		return errNoLease
	case lease.p.maxHold == 0:
		return fmt.Errorf("lockkit: extend %q: %w: the lease has no end that could be moved: acquire it with MaxHold", lease.lock.Key, ErrInvalid)
	case d <= 0:
		return fmt.Errorf("lockkit: extend %q: %w: by %v: must be more than 0", lease.lock.Key, ErrInvalid, d)
	}
	if !lease.holdOn(d) {
		return lease.ending()
	}
	return nil
}

// holdOn moves the end of the lease, if it has not come.
func (lease *Lease) holdOn(d time.Duration) bool {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.state != leaseHeld || lease.left() <= 0 || lease.ctx.Context.Err() != nil {
		return false
	}
	lease.holdFor(d)
	lease.plan()
	return true
}

// ending is the error of who would go on with a lease that has ended.
func (lease *Lease) ending() error {
	ended := lease.ctx.Err() // which notices the end
	lease.mu.Lock()
	defer lease.mu.Unlock()
	switch {
	case lease.reason != "":
		return lease.loss(OpHold, lease.reason)
	case lease.state == leaseHeld: // the context that it ran under has ended, and it has not run out yet
		return &OpError{Op: OpHold, Key: lease.lock.Key, Err: fmt.Errorf("%w: %v", ended, context.Cause(lease.ctx.Context))} //nolint:errorlint // the cause is not what ended this lease
	}
	return &OpError{Op: OpHold, Key: lease.lock.Key, Err: ErrReleased}
}
