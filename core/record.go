package core

import (
	"context"
	"slices"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// proposal is the one record that an attempt ever offers: a ballot must not stand for two, so what a first
// call may have left on a node is what every further call repeats.
func (a *attempt) proposal(result []byte) *wire.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proposed == nil {
		a.proposed = &wire.Record{Rest: a.p.retention, Token: a.token, Result: slices.Clone(result)}
	}
	return a.proposed
}

// propose has all nodes accept a record under a ballot, and reports whether a quorum did: only then is it
// decided. A quorum that holds the same record under another ballot, because somebody settled it, is as good. When wait
// is over it is open what becomes of the record: what was offered may stand.
func (a *attempt) propose(ctx, wait context.Context, rec *wire.Record, ballot uint64, observed bool) ([]NodeReply, error) {
	r := a.offering(rec, ballot, false)
	r.send(ctx, allNodes(len(a.nodes)))
	r.wait(wait)
	t := &r.tally
	done, other := t.doneVotes()
	var err *OpError
	switch {
	case t.count(wire.Granted) >= t.q:
	case done >= t.q && other.Token == rec.Token:
	case done >= t.q || t.count(wire.Gone)+t.count(wire.Done) > len(t.votes)-t.q:
		err = &OpError{Err: ErrLost, Reason: LossTaken}
	case t.recordRefused():
		err = &OpError{Err: ErrLost, Reason: LossForgotten}
	default:
		err = &OpError{Err: ErrUnavailable}
	}
	if err == nil {
		return a.e.report(t, observed), nil
	}
	err.Op, err.Key, err.Nodes = OpComplete, a.lock.Key, a.e.report(t, true)
	return err.Nodes, err
}

// offering is the round that hands a record to nodes and ends the attempt there. A record that is known to be
// decided is accepted by nodes that have promised a later token, or forgotten one, too.
func (a *attempt) offering(rec *wire.Record, ballot uint64, decided bool) *round {
	a.mu.Lock()
	a.completing = true
	each := a.lock.Complete(a.p.lease, len(a.nodes), func(i int) wire.Complete {
		return wire.Complete{Ballot: ballot, Memory: a.nodes[i].memory, Rest: rec.Rest, Token: rec.Token, Result: rec.Result, Bury: a.p.bury,
			Decided: decided, Channel: a.e.waits.channels[a.lock.Bucket], Quits: a.quitting()}
	})
	a.mu.Unlock()
	r := a.round(wire.OpComplete, (*round).recordDecided)
	r.must, r.each, r.bulk = true, each, len(rec.Result)
	return r
}
