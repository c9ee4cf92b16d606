package core

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Provision declares nodes that have never been used to be new, so that they vote at once instead of after the
// max TTL. Call it when nodes are set up, before anything locks on them; never for nodes that may have lost
// their memory. It may be called by several processes at once, and again.
//
// A nil error means that every node votes. Any other matches ErrUnavailable, ErrClosed, or the error and cause of ctx.
// A node that does not answer within the node timeout is an error: call it again. Nodes that do not vote yet wait for the
// max TTL, as they would have without, or for another call. Provision declares no node new unless every node was reached
// and none of them has ever granted anything: a node without a guard record beside one that is in use, or out of reach,
// may have forgotten what it granted. Without the restart guard it does nothing.
func (l *Locker) Provision(ctx context.Context) error {
	if err := l.fit(ctx); err != nil {
		return err
	}
	if !l.p.Guarded {
		return nil
	}
	if !l.e.gate.Enter() {
		return fmt.Errorf("lockkit: provision: %w", ErrClosed)
	}
	defer l.e.gate.Leave()
	for bucket := range l.e.Keys.Buckets() {
		if err := l.provision(ctx, bucket); err != nil {
			return fmt.Errorf("lockkit: provision: %w", err)
		}
	}
	return nil
}

// provision claims all nodes, and, if all of them are new, declares them so. A node keeps its claim until it
// forgets or grants something, so what all of them said when they were claimed still holds where it is declared.
func (l *Locker) provision(ctx context.Context, bucket int) error {
	if l.e.IsClosing() {
		return ErrClosed
	}
	found, err := l.claim(ctx, bucket, nil)
	if err == nil && !slices.ContainsFunc(found, func(v quorum.Vote) bool { return v.Claim == "" }) {
		found, err = l.claim(ctx, bucket, found)
	}
	if err != nil {
		return err
	}
	var faults []error
	for i := range found {
		switch v := &found[i]; {
		case v.Verdict == wire.Granted:
		case v.Claim != "":
			faults = append(faults, fmt.Errorf("%v: not declared new, since not all nodes are: it may have forgotten what it granted, and votes by itself after the max TTL", l.e.Nodes[i]))
		default:
			faults = append(faults, fmt.Errorf("%v: %s", l.e.Nodes[i], v.Why()))
		}
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(faults...))
}

// claim asks all nodes what they are. Those that were found new are declared so.
func (l *Locker) claim(ctx context.Context, bucket int, found []quorum.Vote) ([]quorum.Vote, error) {
	claim := rand.Text()
	var r node.Round
	r.Init(l.e.Group, wire.OpProvision, bucket, l.p.nodeTimeout, nil, nil)
	r.Must, r.Each = true, func(i int) wire.Request {
		was := wire.NoMemory
		if found != nil {
			was = found[i].Claim
		}
		return l.e.Keys.Provision(bucket, claim, was)
	}
	r.Send(ctx, quorum.All(len(l.e.Nodes)))
	if !r.Wait(ctx) {
		return nil, endOf(ctx)
	}
	return r.Votes, nil
}
