package otellock

import (
	"context"

	"github.com/lockkit/lockkit/core"
)

// node is [core.Observer.Node].
func (o *observer) node(ctx context.Context, kind core.OpKind, r core.NodeReply) {
	in, n := &o.in, node{r.Node, r.Addr}
	if !anyEnabled(ctx, in.node, in.voting, in.offset) {
		return
	}
	if r.Verdict != core.VerdictCircuitOpen { // nothing was sent
		in.node.Record(ctx, r.Latency.Seconds(), o.series(reply{n, r.Verdict}))
	}
	if r.Err == nil && kind != core.OpRelease { // the reply to a release does not tell the time
		in.offset.Record(ctx, r.Skew.Seconds(), o.series(n))
	}
	o.voting.Lock() // also around Record: what was found last must be recorded last
	defer o.voting.Unlock()
	if votes, known := o.votes(n, kind, r.Verdict); known {
		in.voting.Record(ctx, votes, o.series(n))
	}
}

// votes returns 1 if a node votes and 0 if it does not, as its reply shows. A node that is unfit refuses acquisitions
// and touches. If it answers anything else, it is there, and may still be unfit.
func (o *observer) votes(n node, kind core.OpKind, v core.Verdict) (votes int64, known bool) {
	switch v {
	case core.VerdictFailed, core.VerdictTimedOut, core.VerdictCircuitOpen:
		return 0, true
	case core.VerdictQuarantined, core.VerdictClockSkewed, core.VerdictReplica, core.VerdictUnguarded:
		o.unfit[n] = true
		return 0, true
	case core.VerdictGranted, core.VerdictHeld, core.VerdictDone, core.VerdictGone, core.VerdictForgotten,
		core.VerdictHealed, core.VerdictPassed, core.VerdictUnconfirmed:
		if kind == core.OpAcquire || kind == core.OpTouch {
			delete(o.unfit, n)
		}
		if o.unfit[n] {
			return 0, true
		}
		return 1, true
	default: // pending, too late and the like say nothing of the node
		return 0, false
	}
}
