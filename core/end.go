package core

import (
	"context"
	"slices"
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
	if a.reached == 0 {
		return 0
	}
	return max(a.p.minHold-(a.e.clock.now()-a.sent), 0)
}

// Boxed once.
var (
	notUndo, doUndo any = "0", "1"
	noTombstone     any = "0"
)

// releasing is a round that ends the attempt, and keeps the resource taken for stay. A node that has answered all
// that it was sent needs no tombstone: nothing can arrive there any more.
func (a *attempt) releasing(stay time.Duration) *round {
	_, idle := a.e.longestLease(a.p)
	args := append(releaseScript.args(6, a.resource, a.tombstone), a.id, a.p.tombstoneMs, stay.Milliseconds(), any(0), idle, notUndo)
	own := len(args) - 6

	a.mu.Lock()
	held := a.reached != 0
	answered := nodeSet(0)
	for i := range a.nodes {
		if a.nodes[i].unanswered == 0 && !a.p.repeats && !a.e.nodes[i].repeats {
			answered = answered.with(i)
		}
	}
	// Whether the attempt became a lease, or has sent a completion: either makes its token known. Neither can come
	// to be after the first release.
	switch {
	case held:
		args[own+3] = a.token // no record with a smaller ballot can be decided any more
	case !a.completing:
		args[own+5] = doUndo // nobody has seen the token, so the node may give it out again
	}
	a.mu.Unlock()

	r := a.round(releaseScript, args, (*round).settled)
	r.must = true
	switch answered {
	case 0:
	case allNodes(len(a.nodes)):
		args[own+1] = noTombstone
	default:
		r.others, r.othersArgs = answered, slices.Clone(args)
		r.othersArgs[own+1] = noTombstone
	}
	return r
}

// free tells all nodes, without waiting for them, that the lease is over.
func (a *attempt) free() {
	a.mu.Lock()
	to := a.reached
	a.mu.Unlock()
	r := a.releasing(a.stay())
	r.send(context.Background(), to)
	r.leave()
}

// releaseAgain has a node that did not answer told once more, in the background, that the attempt is over. Called
// with the lock.
func (a *attempt) releaseAgain(got reply) {
	if got.verdict == TimedOut || !answered(got.err) {
		a.releaseLater(got.node, a.p.nodeTimeout)
	}
}

// releaseLater ends the attempt on one node, in the background, after a delay. Called with the lock.
func (a *attempt) releaseLater(i int, after time.Duration) {
	s := &a.nodes[i]
	if !s.releasing && a.e.unheard.push(a, i, after) {
		s.releasing, s.unreleased = true, false
	}
}

// resend tells a node that the attempt is over. If that fails, too, the lease runs out by itself, and the clock
// window refuses what is still under way.
func (a *attempt) resend(node int) {
	r := a.releasing(a.stay())
	r.must, r.asker = false, nil
	r.onOver = func() {
		defer a.e.tasks.Done()
		a.mu.Lock()
		defer a.mu.Unlock()
		s := &a.nodes[node]
		s.releasing, s.unreleased = false, r.count(Granted)+r.count(Gone) == 0
	}
	r.send(context.Background(), nodeSet(0).with(node))
}
