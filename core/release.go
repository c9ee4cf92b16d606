package core

import (
	"context"
)

// Release gives the key back, or what WithMinHold leaves of it. The lease's context ends at once, with cause
// ErrReleased. Release works with a cancelled ctx, which only lends its values; it takes at most the node
// timeout and may be repeated. After it, or Complete, has succeeded there is nothing left to do.
//
// A nil error means that a quorum confirmed it. ErrLost: the lease had ended before, so the holder was not
// alone to its end. ErrUnavailable: no quorum confirmed it; the key may stay taken until its TTL is over,
// and Release is still being tried in the background.
func (lease *Lease) Release(ctx context.Context) error {
	was := lease.end()
	var next *turn
	defer func() { lease.letGo(was, next != nil) }()
	lease.tellEnd(was)
	if lease.isOver() {
		return lease.outcome(nil)
	}
	e := lease.engine
	if !e.begin(false) {
		return lease.outcome(nil)
	}
	defer e.end()
	ctx, end := lease.p.observe(ctx, OpRelease, lease.key, false, lease.token)

	lease.mu.Lock()
	lease.released = true
	to := lease.reached
	lease.mu.Unlock()
	stay := lease.stay()
	r := lease.releasing(stay)
	r.begin(ctx, to)
	if next = lease.successor(was, stay); next != nil {
		lease.handOn(next, r)
	} else {
		r.dispatch()
	}
	r.wait(context.Background())
	t := &r.tally
	lease.mu.Lock()
	lease.freed = lease.freed || t.confirmed()
	if lease.reason == "" && t.outvoted() {
		lease.reason = LossTaken
	}
	reason := lease.reason
	lease.mu.Unlock()
	err := lease.outcome(t)
	if end != nil {
		end(Outcome{Err: err, Reason: reason, Token: lease.token, Nodes: lease.e.report(t, true)})
	}
	return err
}

// letGo lets the next contender of this process have its turn, unless it has it.
func (lease *Lease) letGo(was leaseState, handedOn bool) {
	if was != leaseHeld {
		return
	}
	if !handedOn {
		lease.engine.lines.leave(lease.turn())
	}
	lease.engine.retire(lease)
}

// outcome is the error of a release.
func (lease *Lease) outcome(t *tally) error {
	switch {
	case lease.lossReason() != "":
		err := lease.lossError(OpRelease)
		if t != nil {
			err.Nodes = lease.e.report(t, true)
		}
		return err
	case t == nil || t.confirmed():
		return nil
	}
	lease.p.logger.Warn("lockkit: release not confirmed, the key may stay taken until its TTL is over", lease.attrs(), "token", lease.token)
	return &OpError{Op: OpRelease, Key: lease.key, Err: ErrUnavailable, RetryAfter: lease.p.server, Nodes: lease.e.report(t, true)}
}
