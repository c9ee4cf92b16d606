package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

func (a *app) ready() *cli.Command {
	return &cli.Command{
		Name:  "ready",
		Usage: "whether a lock could be had now: exit status 0 or 1, for probes",
		Description: "Asks each node whether it would grant a free key; of a Redis Cluster, each of its shards. " +
			"A node that a service would refuse at its start, such as\n" +
			"one that may evict keys or is a replica, is an error, also if the others are a quorum. " +
			"For scripts that wait for nodes to come up. As the liveness\n" +
			"probe of a service it does harm: restarts fix no node.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("ready takes no arguments")
			}

			return a.withFleet(ctx, cmd, a.openAsServices, func(ctx context.Context, f *fleet) error {
				return a.checkReady(ctx, cmd, f)
			})
		},
	}
}

func (a *app) checkReady(ctx context.Context, cmd *cli.Command, f *fleet) error {
	err := f.ready(ctx)
	if err != nil {
		return err
	}

	if asJSON(cmd) {
		return a.printJSON(&readyJSON{Ready: true})
	}
	a.printf("Ready: a quorum of %s would grant a lock.", plural(len(f.clients), "node", "nodes"))
	return nil
}

// ready returns an error if a quorum would not grant a free key. Locker.Ready asks one random shard of a Redis Cluster;
// this method asks all shards.
func (f *fleet) ready(ctx context.Context) error {
	group, leave, err := inside.Enter(ctx, f.Locker, nil)
	if err != nil {
		return err
	}
	defer leave()

	// All shards are asked at once.
	rounds := make([]*node.Round, len(group.Buckets))
	for i, shard := range group.Buckets {
		r := shard.NewTouch()
		r.Decided = func(r *node.Round) bool {
			granted := r.Count(wire.Granted)
			return granted >= r.Q || granted+r.Pending < r.Q
		}
		r.Send(ctx, quorum.All(len(group.Nodes)))
		rounds[i] = r
	}

	for _, r := range rounds {
		ok := r.Wait(ctx)
		if !ok {
			return inside.ContextError(ctx)
		}
		_, _, sameServer := r.SameServer()
		if sameServer || r.Count(wire.Granted) < r.Q {
			replies := inside.Replies(group, &r.Tally).([]core.NodeReply)
			return &core.OpError{Op: core.OpReady, Err: core.ErrUnavailable, Nodes: replies}
		}
	}
	return nil
}

// readyJSON is the output of ready if the nodes are ready. If they are not, the reason is on stderr.
type readyJSON struct {
	Ready bool `json:"ready"`
}
