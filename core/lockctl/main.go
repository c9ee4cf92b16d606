// Command lockctl is for operators of services that lock with lockkit. It shows the holder and the waiters of a key,
// problems of the nodes, and keys that are left behind. It can take a key from a stuck holder.
//
//	export LOCKKIT_NODES=redis://:secret@10.0.0.1:6379,redis://:secret@10.0.0.2:6379,redis://:secret@10.0.0.3:6379
//	go run ./core/lockctl show order:42 # in a clone
//
// The output of lockctl may be out of date when you read it, because leases are granted, renewed and released all the
// time. lockctl cannot stop a holder. The command release ends the lease, but the process that held it may act until it
// notices: use release if the store checks fencing tokens, or if the process is gone.
//
// Nodes, prefix and clock window must be the same as in the services, and so must --max-ttl, --guard and --replica-lag
// if the services set them. With other nodes or another prefix, lockctl looks at other locks, and finds nothing.
// Commands that only read (doctor, ls, show, leaks, ready) change no lock and no record. At its start lockctl tests its
// rights on a key of its own, as every Locker does. docs/operations.md has the rights that it needs, and an example of
// each command.
//
// The exit status is 0 if all is well, 1 if something is wrong with the nodes or the request was refused, and 2 for a
// usage error. If a command that changes something ends before the nodes have confirmed it, at --timeout or because it
// was interrupted, the error says so: the change may have been made.
//
// # JSON
//
// With -o json each command prints one object. Durations are whole milliseconds (names that end in _ms). Times are RFC
// 3339 in UTC. A text that is not valid UTF-8, or begins with a quotation mark, is printed as a string literal of Go,
// so that two keys that differ are two texts. Later versions may add fields, but do not rename them. A missing field is
// zero, empty or unknown. The types named …JSON document the fields (go doc -cmd -u -all).
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core/admin"
)

func main() {
	logging.Disable() // go-redis would print errors that lockctl prints, too

	//nolint:forbidigo // the root of all contexts
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

// run executes lockctl and returns its exit status. args do not include the program's name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	a := &app{
		stdout: &stickyWriter{w: stdout},
		stderr: stderr,
		getenv: getenv,
		dial:   admin.Dial,
	}
	return a.run(ctx, args)
}
