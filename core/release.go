package core

import (
	"context"
	"time"
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
	defer lease.letGo(was)
	if lease.isOver() {
		return lease.outcome(nil)
	}
	e := lease.l.e
	if !e.begin(false) {
		return lease.outcome(nil)
	}
	defer e.end()
	ctx, end := lease.l.observe(ctx, OpRelease, lease.key, false, lease.token)

	lease.mu.Lock()
	lease.released = true
	to := lease.asked
	lease.mu.Unlock()
	r := lease.releasing(lease.stay())
	r.send(ctx, to)
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
		end(Outcome{Err: err, Reason: reason, Token: lease.token, Nodes: lease.l.report(t, true)})
	}
	return err
}

// letGo lets the next contender of this process have its turn.
func (lease *Lease) letGo(was leaseState) {
	if was == leaseHeld {
		lease.l.e.lines.leave(lease.line)
		lease.l.e.retire(lease)
	}
}

// outcome is the error of a release.
func (lease *Lease) outcome(t *tally) error {
	switch {
	case lease.lossReason() != "":
		err := lease.lossError(OpRelease)
		if t != nil {
			err.Nodes = lease.l.report(t, true)
		}
		return err
	case t == nil || t.confirmed():
		return nil
	}
	lease.l.p.logger.Warn("lockkit: release not confirmed, the key may stay taken until its TTL is over", lease.attrs(), "token", lease.token)
	return &OpError{Op: OpRelease, Key: lease.key, Err: ErrUnavailable, RetryAfter: lease.l.p.server, Nodes: lease.l.report(t, true)}
}

// stay is what is left of the min hold of a lease that was held.
func (lease *Lease) stay() time.Duration {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.asked == 0 {
		return 0
	}
	return max(lease.l.p.minHold-(lease.l.e.clock.now()-lease.sent), 0)
}

// reported says whether the attempt became a lease, and whether it has sent a completion: either makes its
// token known. Neither can come to be after the first release.
func (lease *Lease) reported() (held, completing bool) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	return lease.asked != 0, lease.completing
}

// Boxed once.
var notUndo, doUndo any = "0", "1"

// releasing is a round that ends the attempt, and keeps the resource taken for stay.
func (lease *Lease) releasing(stay time.Duration) *round {
	p := &lease.l.p
	_, idle := lease.l.longest()
	var drop any = 0
	undo := notUndo
	switch held, completing := lease.reported(); {
	case held:
		drop = lease.token // no record with a smaller ballot can be decided any more
	case !completing:
		undo = doUndo // nobody has seen the token, so the node may give it out again
	}
	return &round{l: lease.l, lease: lease, bucket: lease.bucket, script: releaseScript, must: true,
		args: append(releaseScript.args(6, lease.resource, lease.tombstone),
			lease.id, p.tombstoneMs, stay.Milliseconds(), drop, idle, undo),
		decided: func(r *round) bool { return r.settled() }, heard: (*Lease).unanswered}
}

// free tells all nodes, without waiting for them, that the lease is over.
func (lease *Lease) free() {
	lease.mu.Lock()
	to := lease.asked
	lease.mu.Unlock()
	r := lease.releasing(lease.stay())
	r.send(context.Background(), to)
	r.leave()
}

// unanswered has a node that did not answer told once more, in the background, that the attempt is over. If
// that fails too, the lease runs out by itself, and the clock window refuses what is still under way.
func (lease *Lease) unanswered(got reply, _ bool) (slept bool) {
	if got.verdict == TimedOut || !answered(got.err) {
		lease.mu.Lock()
		lease.releaseLater(got.node, lease.l.p.nodeTimeout)
		lease.mu.Unlock()
	}
	return false
}

// releaseLater ends the attempt on one node, in the background, after a delay. Called with the lease's lock.
func (lease *Lease) releaseLater(i int, after time.Duration) {
	s := &lease.nodes[i]
	if s.releasing {
		return
	}
	s.releasing, s.unreleased = true, false
	lease.l.e.spawn(func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-lease.l.e.closing: // at once, so that Close does not wait for a node that is down
		}
		r := lease.releasing(lease.stay())
		r.must, r.heard = false, nil
		r.send(context.Background(), nodeSet(0).with(i))
		r.wait(context.Background())
		lease.mu.Lock()
		defer lease.mu.Unlock()
		s.releasing, s.unreleased = false, r.count(Granted)+r.count(Gone) == 0
	})
}
