package core

import (
	"context"
	"fmt"
	"time"
)

// Extend has the nodes keep a lease without watchdog, see FixedLease, as if it had been granted now with a TTL of d:
// it can be trusted for what is left of d after the drift and the clock window, counted from when
// the request is sent. ValidUntil tells. It never shortens a lease.
//
// d is bounded as TTL is: by this process's max TTL, and from below by the clock window; and by what
// MaxHold leaves. A d beyond that is an error that matches
// ErrInvalid and changes nothing, as is a lease that the watchdog renews. ctx only lends its values: Extend takes
// at most the node timeout, whatever becomes of ctx, and ends when the lease does. It may be called again at any time,
// also while another call is under way.
//
// A nil error means that a quorum confirmed it while the lease was still trusted. ErrUnavailable: no quorum confirmed it
// in time; the holder's lease stands as it was, though nodes may keep the key for longer if he vanishes. ErrLost: the
// lease has ended, or a quorum no longer has it. ErrReleased: Release or Complete was called before. If the lease has
// ended with the context given to Acquire, the error matches that of the context.
func (lease *Lease) Extend(ctx context.Context, d time.Duration) error {
	if err := lease.fit(ctx); err != nil {
		return err
	}
	if !lease.p.fixed {
		return fmt.Errorf("lockkit: extend %q: %w: the watchdog renews this lease: only one with FixedLease(true) is extended by its holder", lease.key, ErrInvalid)
	}
	p, err := lease.p.lasting(d)
	if err != nil {
		return fmt.Errorf("lockkit: extend %q: %w: %w", lease.key, ErrInvalid, err)
	}
	e := lease.engine
	if e.begin(false) {
		defer e.end()
	}
	r, err := lease.extension(&p)
	if err != nil {
		return err
	}
	r.margin = lease.left()
	ctx, r.end = p.observe(ctx, OpRenew, lease.key, false, lease.token)
	r.send(ctx, allNodes(len(e.nodes)))
	r.wait(lease.ctx.Context)
	failed := r.settle()
	if over := lease.ending(); over != nil {
		failed = over
	}
	out := r.outcome(failed)
	if r.end != nil {
		r.end(out)
	}
	return out.Err
}

// extension makes the round that extends the lease, if that is to be.
func (lease *Lease) extension(p *policy) (*renewal, error) {
	if over := lease.ending(); over != nil {
		return nil, over
	}
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.renewUntil > 0 {
		if rest := max(lease.renewUntil-lease.e.clock.now(), 0); p.ttl > rest {
			return nil, fmt.Errorf("lockkit: extend %q: %w: %v is more than the %v that the lease may still be held (%s)", lease.key, ErrInvalid, p.ttl, rest, lease.limit)
		}
	}
	return lease.renewal(p), nil // which sends nothing if the lease ends meanwhile
}

// ending is the error of who would go on with a lease that has ended; nil while it is held. It looks at the clock.
func (lease *Lease) ending() *OpError {
	ended := lease.ctx.Err()
	if ended == nil {
		return nil
	}
	lease.mu.Lock()
	state, reason := lease.state, lease.reason
	lease.mu.Unlock()
	switch {
	case reason != "":
		return lease.lossError(OpRenew)
	case state == leaseHeld: // the context that it ran under has ended, and it has not run out yet
		return &OpError{Op: OpRenew, Key: lease.key, Err: fmt.Errorf("%w: %v", ended, context.Cause(lease.ctx.Context))} //nolint:errorlint // the cause is not what ended this lease
	}
	return &OpError{Op: OpRenew, Key: lease.key, Err: ErrReleased}
}
