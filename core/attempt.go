package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// attempt asks all nodes once for the key and settles the outcome. It leaves nothing behind on the nodes
// unless it succeeds.
//
// The order is the protocol's: trust starts before the first request is sent; the token is the greatest
// any granting node gave; it counts only once a quorum stores it while the lease is on those nodes; and the
// clock is looked at last, after every wait.
func (a *acquisition) attempt(ctx, wait context.Context) result {
	l := a.l
	lease := l.newLease(a.parent, a.key, a.line)
	lease.carries = a.carries
	decided := (*round).acquired
	if a.recovering { // who comes to settle a record waits for a node that shows it
		decided = (*round).recovered
	}
	r := round{l: l, lease: lease, bucket: lease.bucket, script: acquireScript, stamped: true, args: lease.acquiring(a.recovering, a.carries),
		decided: decided, heard: (*Lease).lateGrant}
	r.send(ctx, allNodes(len(l.e.nodes)))
	r.wait(wait)
	t := &r.tally
	touched, granted := t.mayHold(), t.granted() // before the votes on the token replace those on the key

	first, second, same := t.sameServer()
	if same {
		t.votes[second] = vote{verdict: Failed, err: fmt.Errorf("%w: it shares its replication history with node %d", errSameServer, first)}
	}
	// A node that had forgotten the longest lease may have voted too soon: what it granted to those who did not
	// bring that along does not count.
	longer := t.heardLonger()
	won := !same && !longer && t.count(Granted) >= t.q && lease.settleToken(ctx, wait, t, r.sent)
	recorded := t.record() != nil
	if won && recorded && a.recovering && lease.trusts(r.sent) {
		return a.adopt(ctx, lease, t, touched)
	}
	if won && !recorded && wait.Err() == nil && lease.hold(t, r.sent) {
		return result{lease: lease, nodes: l.report(t, a.observed)}
	}
	if done, rec := t.doneVotes(); done >= t.q {
		return a.done(ctx, lease, t, rec)
	}
	lease.abandon(ctx, wait, touched, granted)
	if longer && t.count(Granted) >= t.q {
		return result{err: ErrUnavailable, again: true, nodes: l.report(t, true)}
	}
	res := a.refused(t)
	if same {
		res.err = fmt.Errorf("%w: %w", ErrUnavailable, errSameServer)
	}
	return res
}

var (
	errSameServer = errors.New("the same server is listed twice")
	errTooSlow    = fmt.Errorf("%w: the nodes granted the key, but took longer than the lease can be trusted", ErrUnavailable)
)

// settleToken fixes the fencing token: the greatest one granted, once a quorum stores it. A node counts
// only while the lease is on it, for then its next grant must be greater.
func (lease *Lease) settleToken(ctx, wait context.Context, t *tally, sent time.Duration) bool {
	token, stored, granted := t.token()
	lease.mu.Lock()
	lease.token = token
	for i := range t.votes {
		if granted.has(i) {
			lease.nodes[i].granted(reply{t.votes[i], i, sent + t.votes[i].waited})
		}
	}
	lease.mu.Unlock()
	if stored.len() >= t.q {
		return true
	}
	tails := make([][]any, len(t.votes))
	for i := range t.votes {
		tails[i] = []any{token, 0, t.votes[i].token, t.votes[i].memory, 0}
	}
	r := round{l: lease.l, lease: lease, bucket: lease.bucket, script: renewScript, stamped: true, must: true, heard: (*Lease).confirmed,
		args: lease.args(renewScript, 0), tail: func(i int) []any { return tails[i] },
		decided: func(r *round) bool { return r.count(Granted)+stored.len() >= r.q }}
	r.send(ctx, granted&^stored)
	r.wait(wait)
	if r.count(Granted)+stored.len() >= t.q {
		return true
	}
	for i := range r.votes {
		if r.asked.has(i) && r.votes[i].verdict != Granted {
			t.votes[i] = r.votes[i] // not ours any more, or not known to be
		}
	}
	return false
}

// refused says why the attempt failed.
func (a *acquisition) refused(t *tally) result {
	res := result{err: ErrUnavailable, pause: pauseOutOfReach, retry: t.wait(), nodes: a.l.report(t, true)}
	a.behind(t.carried())
	granted := t.count(Granted)
	switch {
	case granted+t.count(Done) >= t.q && t.record() != nil:
		res.err, res.pause, res.recover = ErrHeld, pauseSplit, true
	case granted >= t.q:
		res.err = errTooSlow
	case t.voters() >= t.q:
		res.err, res.pause = ErrHeld, pauseHeld
		if t.split() {
			res.pause = pauseSplit
		}
	case t.voters()+t.count(Quarantined) >= t.q:
		res.pause = pauseQuarantined
	}
	return res
}

// done reports a key that a quorum agrees is completed, and hands the record to nodes that lack it.
func (a *acquisition) done(ctx context.Context, lease *Lease, t *tally, rec *nodeRecord) result {
	lease.over()
	if lacking := t.lacking(rec); lacking != 0 {
		r := lease.completingRound(rec, rec.ballot, true)
		r.send(ctx, lacking)
		r.leave()
	}
	return result{err: ErrDone, record: rec.clone(), nodes: a.l.report(t, true)}
}

// adopt completes what another attempt began to record: the key is done if a quorum confirms that, under
// the token of this attempt. Single-decree Paxos with tokens as ballots: having been granted the key by a
// quorum, this attempt knows every record that can be decided, and the one with the greatest ballot is it.
func (a *acquisition) adopt(ctx context.Context, lease *Lease, t *tally, touched nodeSet) result {
	rec := t.record()
	nodes, err := lease.record(ctx, rec, lease.token, true)
	if err == nil {
		lease.over()
		return result{err: ErrDone, record: rec.clone(), nodes: nodes}
	}
	lease.abandon(ctx, ctx, touched, t.granted())
	if errors.Is(err, ErrLost) {
		return result{err: ErrHeld, pause: pauseSplit, nodes: nodes}
	}
	return result{err: ErrUnavailable, pause: pauseOutOfReach, nodes: nodes}
}

// acquiring is the argument list of acquire.
func (lease *Lease) acquiring(recovering bool, carries string) []any {
	args := lease.args(acquireScript, 3)
	if recovering {
		args = append(args, "1")
	} else {
		args = append(args, "0")
	}
	args = append(args, time.Now().UnixMicro())
	if carries != "" {
		args = append(args, carries)
	}
	return args
}

// report lists the votes for errors and observers. Nobody looks at those of a success that is not observed.
func (l *Locker) report(t *tally, observed bool) []NodeReply {
	if !observed && t.confirmed() {
		return nil
	}
	replies := make([]NodeReply, len(t.votes))
	for i := range t.votes {
		replies[i] = t.votes[i].report(l.e.nodes[i])
	}
	return replies
}

func (v *vote) report(n *node) NodeReply {
	return NodeReply{Node: n.index, Addr: n.addr, Verdict: v.verdict, Rest: v.rest, Skew: v.skew, Latency: v.latency, Err: v.err}
}

// abandon ends an attempt that did not become a lease: what nodes granted or may still grant is released.
// It waits for the nodes that granted, because the next attempt would find its own traces there; not for a
// caller who has given up.
func (lease *Lease) abandon(ctx, wait context.Context, touched, granted nodeSet) {
	lease.over()
	r := lease.releasing(0)
	r.decided = func(r *round) bool { return r.answeredAll(granted) }
	r.send(ctx, touched)
	if granted == 0 {
		r.leave()
		return
	}
	r.wait(wait)
}

// lateGrant takes replies that came after the outcome was decided.
func (lease *Lease) lateGrant(got reply, late bool) (slept bool) {
	if got.verdict != Granted || !late {
		return false
	}
	lease.mu.Lock()
	defer lease.mu.Unlock()
	s := &lease.nodes[got.node]
	s.granted(got)
	if lease.state == leaseOver && s.unreleased {
		lease.releaseLater(got.node, 0)
	}
	return false
}
