package main

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core/fence"
)

// dialects are the databases of package fence.
var dialects = []fence.Dialect{fence.PostgreSQL, fence.MariaDB, fence.SQLite}

// fenceSchema is the only command that needs no nodes.
func (a *app) fenceSchema() *cli.Command {
	return &cli.Command{
		Name:      "fence-schema",
		Usage:     "prints the tables of package core/fence, for your migrations",
		ArgsUsage: "postgresql|mariadb|sqlite",
		Description: "The statements create two tables: the greatest fencing token of each key, and the work that is done. " +
			"Nothing is sent to a node\nor a database.",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() == 1 {
				for _, d := range dialects {
					if cmd.Args().First() == d.String() {
						a.printf("%s", strings.TrimSuffix(fence.New(d).Schema(), "\n"))
						return nil
					}
				}
			}
			return usagef("name the database: fence-schema postgresql, mariadb or sqlite")
		},
	}
}
