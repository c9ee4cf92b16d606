package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrResult matches the error of Complete when the result is larger than WithResultLimit.
var ErrResult = errors.New("result too large")

// Complete records the key as done, with result, and releases it, in one step on each node. For as long as
// WithRetention, acquiring the key fails with ErrDone and the record. The lease's context ends at once.
//
// A nil error means that a quorum holds the record. The other nodes are offered it in the background, for a max
// TTL, and again when somebody asks for the key. Nobody is granted the key, and no other record of it can come
// about, as long as so many of the nodes that have the record keep their memory that no quorum is without one:
// of three nodes two, of five three. Complete may also be called after the lease was lost, for an hour less the
// drift: it succeeds only where nobody was granted the key in between. Repeated after somebody else has settled
// this record, it succeeds, too.
//
// ErrLost: it was not recorded by this call; what reached a minority of nodes may still be settled by a later
// acquirer, unless somebody else completes first. With reason taken, somebody was granted the key. With reason
// forgotten, so many nodes lost their memory since they last confirmed the lease in time that too few can tell
// whether somebody was. ErrUnavailable: too few nodes answered, so what becomes of the record is open: Complete
// may be repeated (the first result counts); if it is not, the next acquirer either finds it and settles it, or
// is granted the key. ErrReleased: Release was called before. ErrClosed: Close has
// taken the lease away. An error matching ErrResult changes nothing: the
// lease goes on.
func (lease *Lease) Complete(ctx context.Context, result []byte) error {
	p := &lease.l.p
	if len(result) > p.resultLimit {
		return fmt.Errorf("lockkit: %w: %d bytes, the limit is %d", ErrResult, len(result), p.resultLimit)
	}
	was := lease.end()
	defer lease.letGo(was)
	e := lease.l.e
	lease.mu.Lock()
	released, completed := lease.released, lease.completed
	lease.mu.Unlock()
	switch {
	case completed:
		return nil
	case released:
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrReleased}
	case float64(-lease.left()) > float64(idleFence)*(1-p.drift): // the counters that would tell of a later holder may be gone
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrLost, Reason: LossExpired}
	}
	if !e.begin(false) {
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrClosed}
	}
	defer e.end()
	ctx, end := lease.l.observe(ctx, OpComplete, lease.key, false, lease.token)
	nodes, err := lease.record(ctx, lease.proposal(result), lease.token, end != nil)
	if err == nil {
		lease.mu.Lock()
		lease.completed = true
		lease.mu.Unlock()
	}
	if end != nil {
		end(Outcome{Err: err, Token: lease.token, Nodes: nodes})
	}
	return err
}

// proposal is the one record that this lease ever offers: a ballot must not stand for two, so what a first
// call may have left on a node is what every further call repeats.
func (lease *Lease) proposal(result []byte) *nodeRecord {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.proposed == nil {
		lease.proposed = &nodeRecord{rest: lease.l.p.retention, Record: Record{Token: lease.token, Result: slices.Clone(result)}}
	}
	return lease.proposed
}

// record has all nodes accept a record under a ballot, and reports whether a quorum did: only then is it
// decided. A quorum that holds the same record under another ballot, because somebody settled it, is as good.
func (lease *Lease) record(ctx context.Context, rec *nodeRecord, ballot uint64, observed bool) ([]NodeReply, error) {
	all := allNodes(len(lease.nodes))
	r := lease.completingRound(rec, ballot, false)
	s := spread{lease: lease, rec: rec, ballot: ballot, since: lease.l.e.clock.now(), missing: all, unheard: all}
	r.heard = s.hear
	r.send(ctx, all)
	r.wait(context.Background())
	t := &r.tally
	done, other := t.doneVotes()
	var err *OpError
	switch {
	case t.count(Granted) >= t.q:
		s.decided()
	case done >= t.q && other.Token == rec.Token:
	case done >= t.q || t.count(Gone)+t.count(Done) > len(t.votes)-t.q:
		err = &OpError{Err: ErrLost, Reason: LossTaken}
	case t.recordRefused():
		err = &OpError{Err: ErrLost, Reason: LossForgotten}
	default:
		err = &OpError{Err: ErrUnavailable}
	}
	if err == nil {
		return lease.l.report(t, observed), nil
	}
	err.Op, err.Key, err.Nodes = OpComplete, lease.key, lease.l.report(t, true)
	return err.Nodes, err
}

// completingRound hands a record to nodes and ends the attempt there. A record that is known to be decided is
// accepted by nodes that have promised a later token, or forgotten one, too.
func (lease *Lease) completingRound(rec *nodeRecord, ballot uint64, decided bool) *round {
	p := &lease.l.p
	flag := "0"
	if decided {
		flag = "1"
	}
	lease.mu.Lock()
	lease.completing = true
	tails := make([][]any, len(lease.nodes))
	for i := range tails {
		tails[i] = []any{ballot, lease.nodes[i].memory, rec.rest.Milliseconds(), rec.Token, p.tombstoneMs, flag, rec.Result}
	}
	lease.mu.Unlock()
	return &round{l: lease.l, lease: lease, bucket: lease.bucket, script: completeScript, stamped: true, must: true, args: lease.args(completeScript, 0),
		tail:    func(i int) []any { return tails[i] },
		decided: func(r *round) bool { return r.recordDecided() }}
}
