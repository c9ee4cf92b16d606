package core

import (
	"context"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Ready reports whether a lock could be granted now: nil means that a quorum of nodes would have granted a free key.
// It is for health endpoints and dashboards, and cheap enough for them: one request to each node. The request changes
// nothing, except that a node that lost its memory begins its quarantine, as with any request. Ready returns when a
// quorum agrees, or cannot agree any more, and waits for at most the node timeout.
//
// Beware of using it as a readiness probe. If the nodes are in trouble, no replica of a service is ready and all are
// taken out at once, so requests that need no lock fail as well; and a replica that is taken out does not recover
// sooner. Use it only to decide whether a replica gets work that cannot be done without a lock. Never use it as a
// liveness probe: restarts do not fix nodes.
//
// The error is an [*OpError] without a key. It matches ErrUnavailable, with the answer of each node (RetryAfter is
// the time until a quorum votes again, if that is known); ErrClosed after Close was called; or the context's error
// and cause. Nil is not a promise: the next acquisition may fail. If a node is a Redis Cluster, each call asks one
// shard, chosen at random.
func (l *Locker) Ready(ctx context.Context) error {
	err := l.checkCall(ctx)
	if err != nil {
		return err
	}

	var failure refusal
	if ctx.Err() != nil {
		return failure.stopError(ctx, l.e.Group, OpReady, "")
	}
	admitted := l.e.gate.Enter()
	if !admitted {
		return failure.stopError(ctx, l.e.Group, OpReady, "")
	}
	defer l.e.gate.Leave()

	shard := l.e.jitter(int64(len(l.e.Buckets)))
	r := l.e.Buckets[shard].NewTouch()
	r.Decided = func(r *node.Round) bool {
		granted := r.Count(wire.Granted)
		return granted >= r.Q || granted+r.Pending < r.Q
	}
	r.Send(ctx, quorum.All(len(l.e.Nodes)))
	r.Wait(ctx)

	t := &r.Tally
	_, _, same := t.SameServer()
	isReady := t.Count(wire.Granted) >= t.Q && !same
	if isReady {
		return nil
	}
	failure = refusalOf(l.e.Group, t)
	failure.at = l.e.Clock.Now()
	return failure.stopError(ctx, l.e.Group, OpReady, "")
}
