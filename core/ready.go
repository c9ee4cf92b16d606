package core

import (
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Ready reports whether a lock could be had: nil means that just now a quorum of nodes would have granted a key that
// nobody holds. It is for health endpoints and dashboards, and cheap enough for them: one request to each node, which
// changes nothing but that a node that lost its memory begins its quarantine, as it does with any request. It returns when
// a quorum agrees, or cannot any more, and waits for no more than the node timeout.
//
// Beware of making it a readiness probe. Where the nodes are in trouble, no replica of a service is ready, all of them are
// taken out at once, and what needs no lock is down as well; and a replica that is not ready is none the better for it. Let
// it decide whether a replica gets work that cannot be done without a lock, and nothing else; and never make it a liveness
// probe: restarts mend no node.
//
// The error is an [*OpError] without a key. It matches ErrUnavailable, with what each node said (RetryAfter is when a quorum
// votes again, where that is known); ErrClosed, once Close was called; or the context's error and cause. Nil is no promise:
// the next acquisition may find otherwise. Of a Redis Cluster each call asks one shard, which it picks at random.
func (l *Locker) Ready(ctx context.Context) error {
	if err := l.fit(ctx); err != nil {
		return err
	}
	failure := &OpError{Op: OpReady, Err: endOf(ctx)}
	if failure.Err == nil && !l.e.gate.Enter() {
		failure.Err = ErrClosed
	}
	if failure.Err != nil {
		return failure
	}
	defer l.e.gate.Leave()
	r := l.e.Touching(int(l.e.jitter(int64(l.e.Keys.Buckets()))))
	r.Decided = func(r *node.Round) bool {
		granted := r.Count(wire.Granted)
		return granted >= r.Q || granted+r.Pending < r.Q
	}
	r.Send(ctx, quorum.All(len(l.e.Nodes)))
	r.Wait(ctx)
	t := &r.Tally
	_, _, same := t.SameServer()
	if t.Count(wire.Granted) >= t.Q && !same {
		return nil
	}
	known := result{err: ErrUnavailable, retry: t.RetryAfter(), at: l.e.Clock.Now(), nodes: replies(l.e.Group, t), open: t.Count(wire.Granted)+t.Count(wire.Pending) >= t.Q}
	if same {
		known.err = fmt.Errorf("%w: %w", ErrUnavailable, node.ErrSameServer)
	}
	return known.stopped(ctx, l.e, OpReady, "")
}
