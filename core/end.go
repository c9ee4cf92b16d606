package core

import (
	"context"
	"slices"
	"time"
)

// How an attempt ends on the nodes, as a lease or without having become one.

// abandon ends an attempt that did not become a lease: what nodes granted or may still grant is released. Of these,
// the late ones need not be told yet. The call keeps its place in their queues until wait is over. abandon waits for
// the nodes that granted, because the next attempt would find its own traces there; not for a caller who has given up.
func (a *attempt) abandon(ctx, wait context.Context, touched, granted, late nodeSet) {
	a.over()
	if granted == 0 && !a.quits && wait.Err() == nil {
		touched &^= a.awaiting(late)
	}
	r := a.releasing(0)
	if wait.Err() == nil && a.goesOn() {
		a.waitsOn(r)
	}
	r.decided = func(r *round) bool { return r.answeredAll(granted) }
	r.send(ctx, touched)
	if granted == 0 {
		r.leave()
		return
	}
	r.wait(wait)
}

// awaiting are those of the nodes that will most likely answer yet that they did not grant the attempt, or have. If
// they did, or do not answer within the node timeout, they are told then that it is over.
func (a *attempt) awaiting(nodes nodeSet) (s nodeSet) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.nodes {
		n := &a.nodes[i]
		if !nodes.has(i) || n.expiry != 0 {
			continue
		}
		if n.unanswered > 0 {
			n.untold = a.e.unheard.push(a, i, a.p.nodeTimeout)
		}
		if n.unanswered == 0 || n.untold {
			s = s.with(i)
		}
	}
	return s
}

// goesOn reports whether the call that made the attempt goes on waiting, and did so before it.
func (a *attempt) goesOn() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wait != nil && !a.quits && a.reached == 0 && a.wait.goesOn()
}

// waitsOn has a release of the attempt give the call that made it its place in the queue back.
func (a *attempt) waitsOn(r *round) {
	r.args = append(r.args, a.e.waits.member(a.bucket, a.wait.name), a.wait.ticket)
	if r.others != 0 {
		r.othersArgs = append(r.othersArgs, r.args[len(r.args)-2:]...)
	}
}

// stay is what is left of the cooldown of a lease that was released with one.
func (a *attempt) stay() time.Duration {
	return max(time.Duration(a.notBefore.Load())-a.e.clock.now(), 0)
}

// Boxed once.
var (
	notUndo, doUndo any = "0", "1"
	noTombstone     any = "0"
)

// releasing is a round that ends the attempt, and keeps the resource taken for stay, in whole milliseconds and no shorter. A node that has answered all
// that it was sent needs no tombstone: nothing can arrive there any more.
func (a *attempt) releasing(stay time.Duration) *round {
	_, idle := a.e.longestLease(a.p)
	args := append(releaseScript.args(8, a.resource, a.tombstone), a.id, a.p.tombstoneMs, (stay + time.Millisecond - 1).Milliseconds(), any(0), idle, notUndo)
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
	if member := a.quitting(); member != "" {
		args = append(args, member)
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
	r := a.releasing(0)
	r.send(context.Background(), to) //nolint:forbidigo // an end is sent whatever became of its caller
	r.leave()
}

// releaseAgain has a node that did not answer told once more, in the background, that the attempt is over. Called
// with the lock.
func (a *attempt) releaseAgain(got reply) {
	if got.verdict == VerdictTimedOut || !answered(got.err) {
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
	known, untold := a.noteEnd(node)
	if known {
		a.e.tasks.Done()
		return
	}
	r := a.releasing(a.stay())
	if a.goesOn() {
		a.waitsOn(r)
	}
	if !untold {
		r.must, r.asker = false, nil
	}
	r.onOver = func() {
		defer a.e.tasks.Done()
		a.mu.Lock()
		defer a.mu.Unlock()
		if s := &a.nodes[node]; !untold {
			s.releasing, s.unreleased = false, r.count(VerdictGranted)+r.count(VerdictGone) == 0
		}
	}
	r.send(context.Background(), nodeSet(0).with(node)) //nolint:forbidigo // an end is sent whatever became of its caller
}

// noteEnd notes that a node is about to be told that the attempt is over. It reports whether that is known to be needless,
// and whether it is for the first time.
func (a *attempt) noteEnd(node int) (known, untold bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.nodes[node]
	known, untold = s.unanswered == 0 && (s.expiry == 0 || s.freed), s.untold
	if s.untold = false; known || untold {
		s.releasing, s.unreleased = false, false
	}
	return known, untold
}
