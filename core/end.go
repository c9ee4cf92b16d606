package core

import (
	"context"
	"time"
)

// How an attempt ends on the nodes, as a lease or without having become one.

// abandon ends an attempt that did not become a lease: what nodes granted or may still grant is released.
// It waits for the nodes that granted, because the next attempt would find its own traces there; not for a
// caller who has given up.
func (a *attempt) abandon(ctx, wait context.Context, touched, granted nodeSet) {
	a.over()
	r := a.releasing(0)
	r.decided = func(r *round) bool { return r.answeredAll(granted) }
	r.send(ctx, touched)
	if granted == 0 {
		r.leave()
		return
	}
	r.wait(wait)
}

// stay is what is left of the min hold of a lease that was held.
func (a *attempt) stay() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == 0 {
		return 0
	}
	return max(a.p.minHold-(a.e.clock.now()-a.sent), 0)
}

// reported says whether the attempt became a lease, and whether it has sent a completion: either makes its
// token known. Neither can come to be after the first release.
func (a *attempt) reported() (held, completing bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked != 0, a.completing
}

// Boxed once.
var notUndo, doUndo any = "0", "1"

// releasing is a round that ends the attempt, and keeps the resource taken for stay.
func (a *attempt) releasing(stay time.Duration) *round {
	_, idle := a.e.longestLease(a.p)
	var drop any = 0
	undo := notUndo
	switch held, completing := a.reported(); {
	case held:
		drop = a.token // no record with a smaller ballot can be decided any more
	case !completing:
		undo = doUndo // nobody has seen the token, so the node may give it out again
	}
	r := a.round(releaseScript, append(releaseScript.args(6, a.resource, a.tombstone),
		a.id, a.p.tombstoneMs, stay.Milliseconds(), drop, idle, undo), (*round).settled)
	r.must = true
	return r
}

// free tells all nodes, without waiting for them, that the lease is over.
func (a *attempt) free() {
	a.mu.Lock()
	to := a.asked
	a.mu.Unlock()
	r := a.releasing(a.stay())
	r.send(context.Background(), to)
	r.leave()
}

// releaseAgain has a node that did not answer told once more, in the background, that the attempt is over. If
// that fails too, the lease runs out by itself, and the clock window refuses what is still under way. Called with
// the lock.
func (a *attempt) releaseAgain(got reply) {
	if got.verdict == TimedOut || !answered(got.err) {
		a.releaseLater(got.node, a.p.nodeTimeout)
	}
}

// releaseLater ends the attempt on one node, in the background, after a delay. Called with the lock.
func (a *attempt) releaseLater(i int, after time.Duration) {
	s := &a.nodes[i]
	if s.releasing {
		return
	}
	s.releasing, s.unreleased = true, false
	a.e.spawn(func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-a.e.closing: // at once, so that Close does not wait for a node that is down
		}
		r := a.releasing(a.stay())
		r.must, r.asker = false, nil
		r.send(context.Background(), nodeSet(0).with(i))
		r.wait(context.Background())
		a.mu.Lock()
		defer a.mu.Unlock()
		s.releasing, s.unreleased = false, r.count(Granted)+r.count(Gone) == 0
	})
}
