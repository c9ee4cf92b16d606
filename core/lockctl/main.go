// Command lockctl is for the operator of services that lock with lockkit: it says who holds a key and who waits, what is
// wrong with the nodes and what is left on them, measures them, and takes a key from a holder that is stuck.
//
//	export LOCKKIT_NODES=redis://:secret@10.0.0.1:6379,redis://:secret@10.0.0.2:6379,redis://:secret@10.0.0.3:6379
//	go run github.com/lockkit/lockkit/core/lockctl@latest show order:42
//
// It cannot promise that what it prints still holds when you read it: leases are granted, renewed and released all the
// time. It cannot stop a holder either. A release takes a key from its lease; the process that held it may go on to act
// until it finds out, so what it works on must check fencing tokens, or you must know that the process is gone.
//
// Nodes, prefix and clock window must be those of the services; with other nodes or another prefix lockctl looks at other
// locks, and finds nothing. What only looks (doctor, ls, show, leaks, watch, ready) changes no lock and no record. When it
// starts, it tries its rights on a key of its own, as every Locker does. The rights that it needs are in
// docs/operations.md, with the commands by example.
//
// The exit status is 0 where all is well, 1 where something is wrong with the nodes or the request was refused, and 2
// where the call makes no sense.
//
// # JSON
//
// With -o json each command prints one object, and watch and bench one for each line. Durations are whole milliseconds
// (names that end in _ms), times are RFC 3339 in UTC. Fields are added, but not renamed. Where a field is missing, it is
// zero, empty or unknown. The types of this package that are named …JSON are the documentation: see their fields.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core/admin"
)

func main() {
	logging.Disable() // go-redis prints what fails by itself; lockctl says it once

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // here it begins
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

// run is lockctl, and returns its exit status. args are without the program's name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	return (&app{stdout: &output{w: stdout}, stderr: stderr, getenv: getenv, dial: admin.Dial}).run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := &cli.Command{
		Name:  "lockctl",
		Usage: "look at lockkit's locks and nodes, and help yourself at 3 a.m.",
		UsageText: "lockctl [--node URL]... [--prefix TEXT] [-o json] COMMAND\n\n" +
			"Nodes and prefix must be those of your services: LOCKKIT_NODES (URLs with commas between them) and LOCKKIT_PREFIX, or the options.",
		Flags:                     flags(),
		Commands:                  a.commands(),
		Writer:                    a.stdout,
		ErrWriter:                 a.stderr,
		HideVersion:               true,
		HideHelpCommand:           true, // it would be a key that cannot be shown
		DisableSliceFlagSeparator: true, // passwords may contain commas
		ExitErrHandler:            func(context.Context, *cli.Command, error) {},
		OnUsageError:              onUsageError,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("there is no such command; lockctl --help lists them") // it may be a URL, so it is not repeated
			}
			return cli.ShowRootCommandHelp(cmd)
		},
	}
	err := root.Run(ctx, append([]string{"lockctl"}, args...))
	if err == nil {
		err = a.stdout.err
	}
	return exit(a.stderr, err)
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
		a.doctor(), a.ls(), a.show(), a.watch(), a.leaks(), a.bench(), a.ready(), a.release(), a.forgetRecord(), a.provision(),
	}
	for _, c := range commands {
		c.OnUsageError, c.DisableSliceFlagSeparator = onUsageError, true // which they do not have from the root
	}
	return commands
}
