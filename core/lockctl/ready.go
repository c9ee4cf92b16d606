package main

import (
	"context"

	"github.com/urfave/cli/v3"
)

func (a *app) ready() *cli.Command {
	return &cli.Command{
		Name: "ready", Usage: "whether a lock could be had now: exit status 0 or 1, for probes",
		Description: "Asks each node whether it would grant a free key. For scripts that wait for nodes to come up. As the liveness\n" +
			"probe of a service it does harm: restarts mend no node.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("ready takes no arguments")
			}
			return a.with(ctx, cmd, a.openAsServices, func(ctx context.Context, f *fleet) error {
				if err := f.Ready(ctx); err != nil {
					return err
				}
				if asJSON(cmd) {
					return a.json(readyJSON{Ready: true})
				}
				a.say("Ready: a quorum of %s would grant a lock.", plural(len(f.clients), "node", "nodes"))
				return nil
			})
		},
	}
}

// readyJSON is what ready prints, where it is; where not, the reason is on stderr.
type readyJSON struct {
	Ready bool `json:"ready"`
}
