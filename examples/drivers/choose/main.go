// Choose does the same work under three kinds of lock, against one store that refuses smaller fencing tokens: lockkit on
// Redis, etcd's mutex with its revision as the token, and a row of PostgreSQL under SELECT … FOR UPDATE NOWAIT.
//
//	make demo-choose   # with what is installed
//	make choose        # installs etcd and PostgreSQL, tests, and writes the tables into docs/choose.md
//
// The locks are in lockkit.go, etcd.go and postgres.go, each to be copied on its own, and the store in store.go. A holder
// of each is paused for longer than its lease, while somebody else does the work; and locks are timed, side by side. The
// servers are started here and end with the program. The exit status is 0 if every late write was refused.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// ttl is for how long a holder may be silent: the TTL of leases, and of PostgreSQL's sessions in a transaction.
const ttl = 3 * time.Second

var errNoPause = errors.New("processes are stopped on Linux only")

// A way runs work under the lock of a key, for which it waits. The token is greater than those of all holders before.
type way interface {
	Do(ctx context.Context, key string, work func(ctx context.Context, token uint64) error) error
	Close(ctx context.Context) error
}

// A backend is what a way needs; other processes open it, too.
type backend struct {
	Kind string // lockkit, etcd or postgres
	URLs []string

	title string // for people
}

func (b backend) open(ctx context.Context) (way, error) {
	switch b.Kind {
	case "lockkit":
		return openLockkit(b.URLs, ttl)
	case "etcd":
		return openEtcd(b.URLs, ttl)
	default:
		return openPostgres(ctx, b.URLs[0], ttl)
	}
}

func main() {
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // lockkit would say that a lease was lost
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if isHolder() {
		if err := hold(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "holder:", err)
			os.Exit(1)
		}
		return
	}
	short := flag.Bool("short", false, "measure little")
	docs := flag.String("docs", "", "directory whose choose.md the tables are written into; without it they are only printed")
	flag.Parse()
	much := amount{rounds: 6, pairs: 100, handoffs: 10}
	if *short {
		much = amount{rounds: 2, pairs: 20, handoffs: 1}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, much, *docs); err != nil {
		fmt.Fprintln(os.Stderr, "choose:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, much amount, docs string) (err error) {
	backends, stop, err := startAll(ctx, out)
	if err != nil {
		return err
	}
	defer stop()
	pauses, err := pauseAll(ctx, backends)
	if errors.Is(err, errNoPause) {
		fmt.Fprintln(out, "SKIPPED: holders that are paused:", err)
	} else if err != nil {
		return err
	}
	times, err := measure(ctx, backends, much)
	if err != nil {
		return err
	}
	text := report(backends, pauses, times, much)
	fmt.Fprintln(out, text)
	for _, p := range pauses {
		if p.write != errStale.Error() || p.value != takenOver {
			err = errors.Join(err, fmt.Errorf("%s: the late write: %q, the value is %d", p.of, p.write, p.value))
		}
	}
	if err == nil && docs != "" {
		err = writeInto(docs, text)
	}
	return err
}

// startAll starts the servers that are installed, and says which are not.
func startAll(ctx context.Context, out io.Writer) (backends []backend, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, start := range []func(context.Context) ([]backend, func(), error){startRedis, startEtcds, startPostgres} {
		bs, end, err := start(ctx)
		var missing *missingError
		if errors.As(err, &missing) && !missing.required() {
			fmt.Fprintln(out, "SKIPPED:", err)
			continue
		}
		if err != nil {
			stop()
			return nil, nil, err
		}
		backends, stops = append(backends, bs...), append(stops, end)
	}
	return backends, stop, nil
}
