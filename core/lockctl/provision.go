package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
)

func (a *app) provision() *cli.Command {
	return &cli.Command{
		Name:  "provision",
		Usage: "declare nodes that were never used to be new, so that they vote at once",
		Description: "For nodes that have just been set up, before anything locks on them. Never for nodes that were restarted, emptied or\n" +
			"replaced: they may have forgotten who holds what, and wait for the max TTL. It declares nothing where one of the nodes is in\n" +
			"use or out of reach. Give --max-ttl if the services set it.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("provision takes no arguments")
			}
			open := func(cmd *cli.Command) (*fleet, error) {
				if cmd.IsSet("guard") {
					return a.open(cmd)
				}
				return a.open(cmd, core.WithRestartGuard(true))
			}
			return a.withFleetToChange(ctx, cmd, open, "the declaration", "call again, which does no harm", func(ctx context.Context, f *fleet) error {
				if err := admin.Provision(ctx, f.Locker); err != nil {
					return err
				}
				if asJSON(cmd) {
					return a.printJSON(&provisionJSON{Voting: len(f.clients)})
				}
				a.printf("%s: every one votes.", plural(len(f.clients), "node", "nodes"))
				return nil
			})
		},
	}
}

// provisionJSON is the output of provision.
type provisionJSON struct {
	Voting int `json:"voting"` // number of nodes; all of them vote
}
