package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Revocation is what became of a lease that somebody other than its holder ended.
type Revocation struct {
	Holder Holder // who had the key
	// Left is for how long the old holder may still take itself for the holder, if it hears nothing: until it looks at its
	// lease's context, or its next renewal is refused, at most. That is when the key is free.
	Left  time.Duration
	Nodes []NodeReply // VerdictGranted: it had the lease; VerdictGone: it had not, and will refuse it; or why it has not answered
}

// Revoke ends the lease on key that has this fencing token, so that it is renewed no more: the key is free when what was
// confirmed last has run out, after Revocation.Left at most, so that nobody else holds it while the old holder may still
// act on it. The holder's context ends at its next renewal, with reason [LossRevoked], when the first node tells it; its
// release and completion are refused. The next fencing token is greater, as ever.
//
// It is for operators: a holder that is stuck and renews for ever. The token is the one that [Locker.Inspect] shows, as
// proof that the lease is the one that was looked at; where the nodes do not agree on one, any that a node has for this
// holder.
//
// A nil error means that a quorum of nodes has ended it, or does not have it. An [*OpError] matches ErrTokenMismatch: the key is not held under
// that token, and nothing has changed; ErrUnavailable: no quorum has confirmed it, but some nodes may have ended it: look,
// and call again; ErrClosed, or the context's error and cause, after which some nodes may have ended it, too. Or the error
// matches ErrInvalid. ctx ends
// the call, which takes two node timeouts at most. What is revoked is logged, with the hash of the key; observers hear
// nothing of it.
//
// A node that loses its memory forgets the revocation. Left is right as long as the nodes that have not confirmed it and
// those that forget it before Left is over are no quorum together, and as the clocks of nodes are within the clock window.
// Where too few nodes have the lease to tell, it is the max TTL.
func (l *Locker) Revoke(ctx context.Context, key string, token uint64) (Revocation, error) {
	state, err := l.Inspect(ctx, key)
	if err != nil {
		return Revocation{}, by(OpRevoke, err)
	}
	h := state.Holder
	if h == nil || token == 0 || h.Token != token && (h.Token != 0 || state.having(h.Attempt, token) == 0) {
		err = ErrTokenMismatch
		if h == nil && token != 0 && state.Unknown() && state.having("", token) > 0 {
			err = ErrUnavailable
		}
		return Revocation{}, &OpError{Op: OpRevoke, Key: key, Err: err, Nodes: state.replies()}
	}
	t, err := l.toAll(ctx, OpRevoke, key, l.revoking(key, h.Attempt))
	if err != nil {
		return Revocation{}, err
	}
	r := Revocation{Holder: *h, Nodes: l.e.report(t, true)}
	for i := range t.Votes {
		r.Left = max(r.Left, t.Votes[i].Rest)
	}
	if t.Count(wire.Granted) <= len(t.Votes)-t.Q {
		// The quorum that confirmed last may be of nodes that have not said for how long: they are away, or have forgotten.
		r.Left = max(r.Left, l.e.Head.Load().MaxTTL)
	}
	switch {
	case t.Count(wire.Granted)+t.Count(wire.Gone) < t.Q:
		err = &OpError{Op: OpRevoke, Key: key, Err: ErrUnavailable, Nodes: r.Nodes}
	case t.Count(wire.Granted) == 0: // it has ended since the look
		err = &OpError{Op: OpRevoke, Key: key, Err: ErrTokenMismatch, Nodes: r.Nodes}
	default:
		l.p.Logger.Warn("lockkit: lease revoked", "key_hash", keyHash(key), "token", token, "holder", h.Note, "name", h.Name, "left", r.Left)
		return r, nil
	}
	return Revocation{}, err
}

// revoking ends an attempt. It is remembered for longer than any lease, whatever the holder's options are: it may be renewed
// until a node tells it.
func (l *Locker) revoking(key, attempt string) wire.Request {
	lock := l.e.Keys.LockOf(key, attempt)
	return lock.Revoke(l.e.Head.Load(), wire.Slack+l.p.tombstone)
}

// ForgetRecord drops the completion record of key that has this fencing token, so that the work is done again by who
// comes next. It is for operators who know that what is recorded as done has to be done again.
//
// A nil error means that no node has the record. An [*OpError] matches ErrTokenMismatch: the nodes have no record, or
// another; nothing has changed. ErrUnavailable: not all nodes have answered. One that has not may have the record still,
// and who asks for the key then takes it for decided and brings it back: call again when the node is back. Else as
// Revoke. Whoever is told of the record brings it to nodes that lack it, so one that others are just settling, or being told
// of, may come back. Look again, and drop it again.
func (l *Locker) ForgetRecord(ctx context.Context, key string, token uint64) error {
	if _, err := l.asked(ctx, key, nil); err != nil {
		return err
	}
	t, err := l.toAll(ctx, OpForget, key, l.e.Keys.Forget(key, token))
	if err != nil {
		return err
	}
	dropped, other := t.Count(wire.Granted), t.Count(wire.Done)
	if dropped > 0 {
		l.p.Logger.Warn("lockkit: completion record dropped", "key_hash", keyHash(key), "token", token, "nodes", dropped)
	}
	switch {
	case dropped+t.Count(wire.Gone)+other < len(t.Votes):
		err = ErrUnavailable
	case dropped == 0:
		err = ErrTokenMismatch
	default:
		return nil
	}
	return &OpError{Op: OpForget, Key: key, Err: err, Nodes: l.e.report(t, true)}
}

// toAll asks all nodes, those in trouble too, and waits for each.
func (l *Locker) toAll(ctx context.Context, op OpKind, key string, q wire.Request) (*quorum.Tally, error) {
	if !l.e.gate.Enter() {
		return nil, &OpError{Op: op, Key: key, Err: ErrClosed}
	}
	defer l.e.gate.Leave()
	r := new(node.Round)
	r.Init(l.e.Group, q.Op(), l.e.Keys.Bucket(key), l.p.nodeTimeout, nil, nil)
	r.Request, r.Must = q, true
	r.Send(ctx, quorum.All(len(l.e.Nodes)))
	if !r.Wait(ctx) {
		return nil, &OpError{Op: op, Key: key, Err: endOf(ctx)}
	}
	return &r.Tally, nil
}

// by is err as one of op.
func by(op OpKind, err error) error {
	if e, ok := errors.AsType[*OpError](err); ok {
		e.Op = op
	}
	return err
}

// replies are what the nodes said, without the key.
func (s KeyState) replies() []NodeReply {
	replies := make([]NodeReply, len(s.Nodes))
	for i, n := range s.Nodes {
		replies[i] = n.NodeReply
	}
	return replies
}
