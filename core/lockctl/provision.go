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
		Description: "For nodes that have just been set up, before anything locks on them. " +
			"Never for nodes that were restarted, emptied or\n" +
			"replaced: they may have forgotten who holds what, and wait for the max TTL. " +
			"It declares nothing where one of the nodes is in\n" +
			"use or out of reach. Give --max-ttl if the services set it.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("provision takes no arguments")
			}

			c := change{name: "the declaration", howToCheck: "call again, which does no harm"}
			return a.withFleetToChange(ctx, cmd, a.openGuarded, c, func(ctx context.Context, f *fleet) error {
				return a.declareNew(ctx, cmd, f)
			})
		},
	}
}

// openGuarded returns a fleet with a Locker that has the restart guard, unless --guard=false turns it off. With fewer than
// three nodes the guard is off by default, and then there is nothing to declare.
func (a *app) openGuarded(cmd *cli.Command) (*fleet, error) {
	if cmd.IsSet("guard") {
		return a.open(cmd)
	}
	return a.open(cmd, core.WithRestartGuard(true))
}

func (a *app) declareNew(ctx context.Context, cmd *cli.Command, f *fleet) error {
	err := admin.Provision(ctx, f.Locker)
	if err != nil {
		return err
	}

	if asJSON(cmd) {
		return a.printJSON(&provisionJSON{Voting: len(f.clients)})
	}
	a.printf("%s: every one votes.", plural(len(f.clients), "node", "nodes"))
	return nil
}

// provisionJSON is the output of provision.
type provisionJSON struct {
	Voting int `json:"voting"` // number of nodes; all of them vote
}
