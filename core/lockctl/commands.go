package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"
)

// run executes the command that args name, and returns the exit status.
func (a *app) run(ctx context.Context, args []string) int {
	root := &cli.Command{
		Name:  "lockctl",
		Usage: "look at lockkit's locks and nodes, and help yourself at 3 a.m.",
		UsageText: "lockctl [--node URL]... [--prefix TEXT] [-o json] COMMAND\n\n" +
			"Nodes and prefix must be those of your services: " +
			"LOCKKIT_NODES (URLs with commas between them) and LOCKKIT_PREFIX, or the options.",
		Flags:                     flags(),
		Commands:                  a.commands(),
		Writer:                    a.stdout,
		ErrWriter:                 a.stderr,
		HideVersion:               true,
		HideHelpCommand:           true, // otherwise show could not take the key "help"
		DisableSliceFlagSeparator: true, // passwords may contain commas
		ExitErrHandler:            func(context.Context, *cli.Command, error) {},
		OnUsageError:              onUsageError,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				// The argument may be a URL with a password, so it is not repeated.
				return usagef("there is no such command; lockctl --help lists them")
			}
			return cli.ShowRootCommandHelp(cmd)
		},
	}

	err := root.Run(ctx, append([]string{"lockctl"}, args...))
	hasNoMessage := err == nil || errors.Is(err, errProblemFound)
	if hasNoMessage && a.stdout.err != nil {
		err = fmt.Errorf("the output could not be printed: %w", a.stdout.err)
	}
	return exitStatus(a.stderr, err)
}

func onUsageError(_ context.Context, cmd *cli.Command, err error, sub bool) error {
	name := "lockctl"
	if sub {
		name += " " + cmd.Name
	}
	return usagef("%w; see %s --help", err, name)
}

func (a *app) commands() []*cli.Command {
	commands := []*cli.Command{
		a.doctor(),
		a.ls(),
		a.show(),
		a.leaks(),
		a.ready(),
		a.release(),
		a.forgetRecord(),
		a.provision(),
		a.lowerMaxTTL(),
		a.fenceSchema(),
	}
	for _, c := range commands {
		// Commands do not inherit these from the root.
		c.OnUsageError = onUsageError
		c.DisableSliceFlagSeparator = true
	}
	return commands
}
