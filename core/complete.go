package core

import (
	"context"
	"errors"
	"fmt"
)

// ErrResult matches the error of Complete when the result is larger than WithResultLimit.
var ErrResult = errors.New("result too large")

// Complete records the key as done, with result, and releases it, in one step on each node. For as long as
// WithRetention, acquiring the key fails with ErrDone and the record. The lease's context ends at once.
//
// A nil error means that a quorum holds the record: from now on nobody is granted the key and no other
// record of it can come about, as long as a quorum of nodes keeps its memory. Complete may also be called
// after the lease was lost: the fencing tokens then decide, and it succeeds only where nobody was granted
// the key in between.
//
// ErrLost: somebody was, and the record stands on no quorum. ErrUnavailable: too few nodes answered, so
// what becomes of the record is open: Complete may be repeated; if it is not, the next acquirer either finds
// it and settles it, or is granted the key. ErrReleased: Release was called before. An error matching
// ErrResult changes nothing: the lease goes on.
func (lease *Lease) Complete(ctx context.Context, result []byte) error {
	p := &lease.l.p
	if len(result) > p.resultLimit {
		return fmt.Errorf("lockkit: %w: %d bytes, the limit is %d", ErrResult, len(result), p.resultLimit)
	}
	was := lease.end()
	lease.mu.Lock()
	released := lease.released
	lease.mu.Unlock()
	if released {
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrReleased}
	}
	e := lease.l.e
	if !e.begin(false) {
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrClosed}
	}
	defer e.end()
	ctx, end := lease.l.observe(ctx, OpComplete, lease.key, false, lease.token)
	rec := &nodeRecord{rest: p.retention, Record: Record{Token: lease.token, Result: result}}
	nodes, err := lease.record(ctx, rec, lease.token)
	if err == nil {
		lease.mu.Lock()
		lease.completed = true
		lease.mu.Unlock()
	}
	lease.letGo(was)
	if end != nil {
		end(Outcome{Err: err, Token: lease.token, Nodes: nodes})
	}
	return err
}

// record has all nodes accept a record under a ballot, and reports whether a quorum did: only then is it
// decided.
func (lease *Lease) record(ctx context.Context, rec *nodeRecord, ballot uint64) ([]NodeReply, error) {
	r := lease.completing(rec, ballot, false)
	r.send(ctx, allNodes(len(lease.nodes)))
	r.wait(context.Background())
	t := &r.tally
	nodes := lease.l.report(t)
	switch {
	case t.count(Granted) >= t.q:
		return nodes, nil
	case t.outvoted():
		return nodes, &OpError{Op: OpComplete, Key: lease.key, Err: ErrLost, Reason: LossTaken, Nodes: nodes}
	}
	return nodes, &OpError{Op: OpComplete, Key: lease.key, Err: ErrUnavailable, Nodes: nodes}
}

// completing is a round that hands a record to nodes and ends the attempt there. A record that is known to
// be decided is accepted by nodes that have promised a later token, too.
func (lease *Lease) completing(rec *nodeRecord, ballot uint64, decided bool) *round {
	p := &lease.l.p
	lease.mu.Lock()
	confirmed := lease.confirmedExpiries()
	lease.mu.Unlock()
	flag := "0"
	if decided {
		flag = "1"
	}
	return &round{l: lease.l, lease: lease, script: completeScript, must: true, args: lease.args(completeScript, 0),
		tail: func(i int) []any {
			return []any{ballot, confirmed[i], rec.rest.Milliseconds(), rec.Token, p.tombstoneMs, flag, rec.Result}
		},
		decided: func(r *round) bool { return r.settled() }}
}
