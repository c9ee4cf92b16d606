package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Provision declares nodes that have never been used to be new, so that they vote at once instead of after the
// max TTL. Call it when nodes are set up, before anything locks on them; never for nodes that may have lost
// their memory. It may be called by several processes at once, and again.
//
// A nil error means that every node votes. Any other matches core.ErrUnavailable, core.ErrClosed, or the error and cause of ctx.
// A node that does not answer within the node timeout is an error: call it again. Nodes that do not vote yet wait for the
// max TTL, as they would have without, or for another call. Provision declares no node new unless every node was reached
// and none of them has ever granted anything: a node without a guard record beside one that is in use, or out of reach,
// may have forgotten what it granted. Without the restart guard it does nothing.
func Provision(ctx context.Context, l *core.Locker) error {
	g, leave, err := inside.Enter(ctx, l, nil)
	switch {
	case errors.Is(err, core.ErrInvalid):
		return err
	case err == nil:
		defer leave()
		for bucket := 0; err == nil && g.Conf.Guarded && bucket < g.Keys.Buckets(); bucket++ {
			err = provision(ctx, g, bucket)
		}
	}
	if err != nil {
		return fmt.Errorf("lockkit: provision: %w", err)
	}
	return nil
}

// provision claims all nodes, and, if all of them are new, declares them so. A node keeps its claim until it
// forgets or grants something, so what all of them said when they were claimed still holds where it is declared.
func provision(ctx context.Context, g *node.Group, bucket int) error {
	if g.IsClosing() {
		return core.ErrClosed
	}
	found, ok := g.Claim(ctx, bucket, nil)
	if ok && !slices.ContainsFunc(found, func(v quorum.Vote) bool { return v.Claim == "" }) {
		found, ok = g.Claim(ctx, bucket, found)
	}
	if !ok {
		return inside.EndOf(ctx)
	}
	var faults []error
	for i := range found {
		switch v := &found[i]; {
		case v.Verdict == wire.Granted:
		case v.Claim != "":
			faults = append(faults, fmt.Errorf("%v: not declared new, since not all nodes are: it may have forgotten what it granted, and votes by itself after the max TTL", g.Nodes[i]))
		default:
			faults = append(faults, fmt.Errorf("%v: %s", g.Nodes[i], v.Why()))
		}
	}
	if faults == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", core.ErrUnavailable, errors.Join(faults...))
}
