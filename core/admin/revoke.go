package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Revocation is what became of a lease that somebody other than its holder ended.
type Revocation struct {
	Holder core.Holder // who had the key
	// Left is for how long the old holder may still take itself for the holder, if it hears nothing: until it looks at its
	// lease's context, or its next renewal is refused, at most. That is when the key is free.
	Left  time.Duration
	Nodes []core.NodeReply // VerdictGranted: it had the lease; VerdictGone: it had not, and will refuse it; or why it has not answered
}

// Revoke ends the lease on key that has this fencing token, so that it is renewed no more: the key is free when what was
// confirmed last has run out, after Revocation.Left at most, so that nobody else holds it while the old holder may still
// act on it. The holder's context ends at its next renewal, with reason [core.LossRevoked], when the first node tells it; its
// release and completion are refused. The next fencing token is greater, as ever.
//
// It is for operators: a holder that is stuck and renews for ever. The token is the one that [core.Locker.Inspect] shows, as
// proof that the lease is the one that was looked at; where the nodes do not agree on one, any that a node has for this
// holder.
//
// A nil error means that a quorum of nodes has ended it, or does not have it. A [*core.OpError] matches ErrTokenMismatch: the key is not held under
// that token, and nothing has changed; ErrUnavailable: no quorum has confirmed it, but some nodes may have ended it: look,
// and call again; ErrClosed, or the context's error and cause, after which some nodes may have ended it, too. Or the error
// matches ErrInvalid. ctx ends
// the call, which takes two node timeouts at most. What is revoked is logged, with the hash of the key; observers hear
// nothing of it.
//
// A node that loses its memory forgets the revocation. Left is right as long as the nodes that have not confirmed it and
// those that forget it before Left is over are no quorum together, and as the clocks of nodes are within the clock window.
// Where too few nodes have the lease to tell, it is the max TTL.
func Revoke(ctx context.Context, l *core.Locker, key string, token uint64) (Revocation, error) {
	state, err := l.Inspect(ctx, key)
	if op, ok := errors.AsType[*core.OpError](err); ok {
		op.Op = core.OpRevoke
	}
	if err != nil {
		return Revocation{}, err
	}
	if err := held(&state, token); err != nil {
		failure := &core.OpError{Op: core.OpRevoke, Key: key, Err: err}
		for _, n := range state.Nodes {
			failure.Nodes = append(failure.Nodes, n.NodeReply)
		}
		return Revocation{}, failure
	}
	h := state.Holder
	q, err := ask(ctx, l, core.OpRevoke, key, func(g *node.Group) wire.Request {
		lock := g.Keys.LockOf(key, h.Attempt)
		return lock.Revoke(g.Head.Load())
	})
	if err != nil {
		return Revocation{}, err
	}
	r := Revocation{Holder: *h, Nodes: q.nodes}
	for i := range q.Votes {
		r.Left = max(r.Left, q.Votes[i].Rest)
	}
	ended := q.Count(wire.Granted)
	if ended <= len(q.Votes)-q.Q {
		// The quorum that confirmed last may be of nodes that have not said for how long: they are away, or have forgotten.
		r.Left = max(r.Left, q.group.Head.Load().MaxTTL)
	}
	switch {
	case ended+q.Count(wire.Gone) < q.Q:
		return Revocation{}, q.fails(core.ErrUnavailable)
	case ended == 0: // it has ended since the look
		return Revocation{}, q.fails(ErrTokenMismatch)
	}
	q.group.Conf.Logger.Warn("lockkit: lease revoked", "key_hash", inside.KeyHash(key), "token", token, "holder", h.Note, "name", h.Name, "left", r.Left)
	return r, nil
}

// held is why the lease under that token cannot be ended, nil where it can.
func held(state *core.KeyState, token uint64) error {
	shown := func(n core.KeyOnNode) bool {
		return n.Holder != nil && n.Holder.Token == token && (state.Holder == nil || n.Holder.Attempt == state.Holder.Attempt)
	}
	switch h := state.Holder; {
	case token == 0:
		return ErrTokenMismatch
	case h != nil && (h.Token == token || h.Token == 0 && slices.ContainsFunc(state.Nodes, shown)):
		return nil
	case h == nil && state.Unknown() && slices.ContainsFunc(state.Nodes, shown):
		return core.ErrUnavailable
	}
	return ErrTokenMismatch
}

// ForgetRecord drops the completion record of key that has this fencing token, so that the work is done again by who
// comes next. It is for operators who know that what is recorded as done has to be done again.
//
// A nil error means that no node has the record. A [*core.OpError] matches ErrTokenMismatch: the nodes have no record, or
// another; nothing has changed. ErrUnavailable: not all nodes have answered. One that has not may have the record still,
// and who asks for the key then takes it for decided and brings it back: call again when the node is back. Else as
// Revoke. Whoever is told of the record brings it to nodes that lack it, so one that others are just settling, or being told
// of, may come back. Look again, and drop it again.
func ForgetRecord(ctx context.Context, l *core.Locker, key string, token uint64) error {
	q, err := ask(ctx, l, core.OpForget, key, func(g *node.Group) wire.Request { return g.Keys.Forget(key, token) })
	if err != nil {
		return err
	}
	dropped, other := q.Count(wire.Granted), q.Count(wire.Done)
	if dropped > 0 {
		q.group.Conf.Logger.Warn("lockkit: completion record dropped", "key_hash", inside.KeyHash(key), "token", token, "nodes", dropped)
	}
	switch {
	case dropped+q.Count(wire.Gone)+other < len(q.Votes):
		return q.fails(core.ErrUnavailable)
	case dropped == 0:
		return q.fails(ErrTokenMismatch)
	}
	return nil
}
