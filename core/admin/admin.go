// Package admin is for operators, not for services. It diagnoses nodes, declares unused nodes to be new, ends the
// leases of stuck holders, and drops completion records. Command lockctl uses it.
//
//	Diagnose       say what is wrong with servers, and how to fix it; needs no Locker
//	Provision      declare nodes to be new, so that they vote at once
//	Revoke         end the lease of a holder that is stuck
//	ForgetRecord   drop a completion record, so that the work is done again
//	Dial           make the clients that core.Open makes
package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Dial returns the clients that core.Open makes for these URLs. It sends nothing. The caller must close the clients.
// The error matches core.ErrInvalid.
func Dial(urls []string, opts ...core.Option) ([]redis.UniversalClient, error) {
	return inside.Dial(urls, opts)
}

// Provision declares nodes that have never been used to be new, so that they vote at once instead of after the max
// TTL. Call it when nodes are set up, before any process locks on them. Never call it for nodes that may have lost
// their memory. It may be called by several processes at once, and again.
//
// A nil error means that every node votes. Any other error matches core.ErrUnavailable, core.ErrClosed,
// core.ErrInvalid, or the error and cause of ctx. A node that does not answer within the node timeout is an error:
// call Provision again. Nodes that do not vote yet wait for the max TTL, as they would without Provision, or for
// another call.
//
// Provision declares no node new unless every node was reached and none has ever granted a key: a node without a
// guard record may have forgotten its grants if another node is in use or out of reach. Without the restart guard,
// Provision does nothing.
func Provision(ctx context.Context, l *core.Locker) error {
	err := provisionAll(ctx, l)
	if err == nil || errors.Is(err, core.ErrInvalid) {
		return err
	}
	return fmt.Errorf("lockkit: provision: %w", err)
}

// provisionAll provisions every bucket of the nodes. The buckets of a Redis Cluster have a guard record each.
func provisionAll(ctx context.Context, l *core.Locker) error {
	g, leave, err := inside.Enter(ctx, l, nil)
	if err != nil {
		return err
	}
	defer leave()

	if !g.Conf.Guarded {
		return nil
	}

	for _, b := range g.Buckets {
		err := provision(ctx, b)
		if err != nil {
			return err
		}
	}
	return nil
}

// provision claims all nodes and, if all are new, declares them new. A node keeps its claim until it forgets or grants
// something, so the answers to the claims still hold when the nodes are declared new.
func provision(ctx context.Context, b *node.Bucket) error {
	if b.IsClosing() {
		return core.ErrClosed
	}

	found, ok := b.Claim(ctx, nil)

	// No node is declared new unless all are.
	isUnclaimed := func(v quorum.Vote) bool { return v.Claim == "" }
	allNew := ok && !slices.ContainsFunc(found, isUnclaimed)
	if allNew {
		found, ok = b.Claim(ctx, found)
	}
	if !ok {
		return inside.ContextError(ctx)
	}

	var faults []error
	for i := range found {
		v := &found[i]
		switch {
		case v.Verdict == wire.Granted:
		case v.Claim != "":
			faults = append(faults, fmt.Errorf(
				"%v: not declared new, since not all nodes are: it may have forgotten what it granted, "+
					"and votes by itself after the max TTL", b.Nodes[i],
			))
		default:
			faults = append(faults, fmt.Errorf("%v: %s", b.Nodes[i], v.Explain()))
		}
	}
	if faults != nil {
		return fmt.Errorf("%w: %w", core.ErrUnavailable, errors.Join(faults...))
	}
	return nil
}

// ErrTokenMismatch means that the key is not held, or not recorded as completed, under that token: it has changed
// since the token was read. The call has changed nothing; look again. The error matches [core.ErrInvalid].
var ErrTokenMismatch = fmt.Errorf("%w: not the token of the key", core.ErrInvalid)

// A Revocation is the result of ending another process's lease.
type Revocation struct {
	Holder core.Holder // the holder whose lease was ended

	// Left is how long the old holder may still act as the holder if it is not notified, at most: until it looks at
	// its lease's context, or until its next renewal is refused. Then the key is free.
	Remaining time.Duration
	Nodes     []core.NodeReply // Granted: it had the lease; Gone: it had not, and will refuse it; or why it did not answer
}

// Revoke ends the lease on key that has this fencing token, so that it is not renewed any more. The key is free when
// the last confirmed lease time has passed, after Revocation.Remaining at most. Thus the key is not granted while the old
// holder may still act on it. The holder's context ends at its next renewal, with reason [core.LossRevoked], when the
// first node reports the revocation. Its release and completion are refused. The next fencing token is greater, as
// always.
//
// Revoke is for operators, if a holder is stuck and renews for ever. The token is the one that [core.Locker.Inspect]
// returns, as proof that the caller has looked at this lease. If the nodes do not agree on a token, use any that a
// node has for this holder.
//
// A nil error means that a quorum of nodes has ended the lease or does not have it. A [*core.OpError] matches one of
// these:
//
//   - ErrTokenMismatch: the key is not held under that token, and nothing has changed.
//   - ErrUnavailable: no quorum has confirmed the revocation, but some nodes may have ended the lease: look, and call
//     again.
//   - ErrClosed, or the context's error and cause: some nodes may have ended the lease, too.
//
// Otherwise the error matches ErrInvalid. ctx ends the call, which takes two node timeouts at most. The revocation is
// logged, with the hash of the key. Observers are not called.
//
// A node that loses its memory forgets the revocation. Left is right as long as the nodes that have not confirmed it
// and the nodes that forget it before Remaining has passed are no quorum together, and as the clocks of nodes are within
// the clock window. If too few nodes have the lease to tell, Remaining is the max TTL.
func Revoke(ctx context.Context, l *core.Locker, key string, token uint64) (Revocation, error) {
	// The errors of Inspect become errors of this operation.
	state, err := l.Inspect(ctx, key)
	if op, ok := errors.AsType[*core.OpError](err); ok {
		op.Op = core.OpRevoke
	}
	if err != nil {
		return Revocation{}, err
	}

	// The token must be the one of the lease that the operator has looked at.
	q := query{OpError: core.OpError{Op: core.OpRevoke, Key: key}}
	err = checkHolder(&state, token)
	if err != nil {
		for _, n := range state.Nodes {
			q.Nodes = append(q.Nodes, n.NodeReply)
		}
		return Revocation{}, q.fail(err)
	}

	h := state.Holder
	err = q.ask(ctx, l, func(g *node.Group) wire.Request {
		lock := g.Keys.LockOf(key, h.Attempt)
		return lock.Revoke(g.Head.Load())
	})
	if err != nil {
		q.logUnconfirmed(
			"lockkit: lease may have been revoked: the call ended before a quorum of nodes had confirmed it",
			token, err,
		)
		return Revocation{}, err
	}

	// The key is free when the lease has run out on each node.
	r := Revocation{Holder: *h, Nodes: q.Nodes}
	for i := range q.Votes {
		r.Remaining = max(r.Remaining, q.Votes[i].Remaining)
	}

	ended := q.Count(wire.Granted)
	tooFew := ended <= len(q.Votes)-q.Q
	if tooFew {
		// The quorum that confirmed the lease last may be nodes that have not reported its rest: they are away, or
		// forgot it.
		r.Remaining = max(r.Remaining, q.group.Head.Load().MaxTTL)
	}

	switch {
	case ended+q.Count(wire.Gone) < q.Q:
		err := q.fail(core.ErrUnavailable)
		q.logUnconfirmed("lockkit: lease may have been revoked: no quorum of nodes has confirmed it", token, err)
		return Revocation{}, err
	case ended == 0: // the lease has ended since Inspect
		return Revocation{}, q.fail(ErrTokenMismatch)
	}

	q.group.Conf.Logger.Warn(
		"lockkit: lease revoked",
		"key_hash", inside.KeyHash(key), "token", token, "holder", h.Note, "name", h.Name, "left", r.Remaining,
	)
	return r, nil
}

// checkHolder returns an error if the lease under that token cannot be ended.
func checkHolder(state *core.KeyState, token uint64) error {
	if token == 0 {
		return ErrTokenMismatch
	}

	h := state.Holder
	hasToken := func(n core.KeyOnNode) bool {
		if n.Holder == nil || n.Holder.Token != token {
			return false
		}
		return h == nil || n.Holder.Attempt == h.Attempt
	}
	isOnNode := slices.ContainsFunc(state.Nodes, hasToken)

	switch {
	case h != nil && (h.Token == token || h.Token == 0 && isOnNode):
		return nil
	case h == nil && isOnNode && state.Unknown():
		return core.ErrUnavailable
	default:
		return ErrTokenMismatch
	}
}

// ForgetRecord drops the completion record of key that has this fencing token, so that the next caller does the work
// again. It is for operators who know that work recorded as done must be repeated.
//
// A nil error means that no node has the record. A [*core.OpError] matches one of these:
//
//   - ErrTokenMismatch: the nodes have no record, or another one; nothing has changed.
//   - ErrUnavailable: not all nodes have answered. A node that has not may still have the record, and a caller that
//     asks for the key then takes the record for decided and brings it back: call again when the node is back.
//   - ErrClosed, or the context's error and cause, as for Revoke.
//
// Otherwise the error matches ErrInvalid. A caller that gets the record brings it to nodes that lack it. So if
// callers are settling the record or getting it at the moment, it may come back. Look again, and drop it again.
func ForgetRecord(ctx context.Context, l *core.Locker, key string, token uint64) error {
	q := query{OpError: core.OpError{Op: core.OpForget, Key: key}}
	err := q.ask(ctx, l, func(g *node.Group) wire.Request { return g.Keys.Forget(key, token) })
	if err != nil {
		q.logUnconfirmed(
			"lockkit: completion record may have been dropped: the call ended before the nodes had confirmed it",
			token, err,
		)
		return err
	}

	dropped, other := q.Count(wire.Granted), q.Count(wire.Done)
	if dropped > 0 {
		q.group.Conf.Logger.Warn(
			"lockkit: completion record dropped",
			"key_hash", inside.KeyHash(key), "token", token, "nodes", dropped,
		)
	}

	switch {
	case dropped+other+q.Count(wire.Gone) < len(q.Votes):
		return q.fail(core.ErrUnavailable)
	case dropped == 0:
		return q.fail(ErrTokenMismatch)
	}
	return nil
}

// A query is one request to all nodes, including those in trouble.
type query struct {
	core.OpError // the error of the operation, if it fails
	quorum.Tally
	group *node.Group // nil: no node was asked
}

// ask sends the request to all nodes, and waits until each has answered or the node timeout has passed.
func (q *query) ask(ctx context.Context, l *core.Locker, request func(*node.Group) wire.Request) error {
	g, leave, err := inside.Enter(ctx, l, &q.Key)
	switch {
	case errors.Is(err, core.ErrClosed):
		return q.fail(err)
	case err != nil:
		return err
	}
	defer leave()

	req := request(g)
	var r node.Round
	r.Init(g.Bucket(q.Key), req.Op(), g.Conf.Timeout, nil, nil)
	r.Request = req
	r.AskTroubled = true
	r.Send(ctx, quorum.All(len(g.Nodes)))

	// From here on, nodes may have acted on the request.
	q.group = g
	answered := r.Wait(ctx)
	if !answered {
		return q.fail(inside.ContextError(ctx))
	}
	q.Tally = r.Tally
	q.Nodes = inside.Replies(g, &r.Tally).([]core.NodeReply)
	return nil
}

// logUnconfirmed logs that the operation may have taken effect, if any node was asked.
func (q *query) logUnconfirmed(msg string, token uint64, err error) {
	if q.group != nil {
		q.group.Conf.Logger.Warn(msg, "key_hash", inside.KeyHash(q.Key), "token", token, "err", err)
	}
}

// fail returns the error of the operation that failed with err.
func (q *query) fail(err error) error {
	inside.Fail(&q.OpError, err)
	return &q.OpError
}
