package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

const (
	service = "playground"

	ttl    = 2500 * time.Millisecond // short, so that what the dead have held is soon free
	window = ttl / 10                // so short a lease needs a smaller clock window, the same in all processes
)

func lockerOptions(guard bool) []core.Option {
	return []core.Option{
		core.TTL(ttl), core.WithClockWindow(window), core.WithRestartGuard(guard),
		core.WithLogger(slog.New(slog.DiscardHandler)), // the page shows what happens
	}
}

// roleEnv makes a process a replica; it has a role.
const roleEnv = "LOCKKIT_PLAYGROUND_REPLICA"

// A role is what a replica is told when it starts.
type role struct {
	Name  string
	Nodes []string // URLs, through proxies of its own
	Queue string   // the address of asynq's Redis
	Store string
	Guard bool
	Skew  time.Duration
}

// A replica is a process of the service: what you would write, but that it tells what it does.
type replica struct {
	role
	*reporter
	clock *stage.Clock // gocron's
	locks *core.Locker
	store remote
	stops []func(context.Context) error // in reverse
	work  sync.WaitGroup                // ends with the context of play
}

// play is main of a replica. It ends when its orders do.
func play(orders io.Reader) (err error) {
	r := &replica{}
	if err := json.Unmarshal([]byte(os.Getenv(roleEnv)), &r.role); err != nil {
		return err
	}
	r.reporter = newReporter(r.Name, os.Stdout)
	r.clock = stage.NewClock(r.Skew)
	r.store = newRemote(r.Store, r.Name)
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		cancel()
		err = errors.Join(err, r.stop())
	}()

	r.locks, err = core.Open(r.Nodes, append(lockerOptions(r.Guard), core.WithObserver(r.watch()), core.Note(r.Name))...)
	if err != nil {
		return err
	}
	r.stops = append(r.stops, r.locks.Close)
	for _, start := range []func(context.Context) error{r.startElector, r.startCron, r.startQueue, r.startWeb, r.startTurns, r.startCalls} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	r.work.Go(func() { r.report(ctx) })
	r.obey(ctx, orders)
	return nil
}

// obey does as it is told until there are no more orders.
func (r *replica) obey(ctx context.Context, orders io.Reader) {
	for lines := json.NewDecoder(orders); ; {
		var o Order
		if lines.Decode(&o) != nil {
			return
		}
		switch o.Do {
		case "skew":
			r.clock.Skew(duration(o.Ms))
		case "update":
			r.work.Go(func() { r.turn(ctx, o) })
		}
	}
}

// stop shuts down as a deployment would have it, within seconds. When these are over it leaves the rest as it is: nodes are
// in trouble, and leases run out by themselves. The Locker would take them away and free their keys, and the next holder may
// be told of before that is.
func (r *replica) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var errs []error
	for _, stop := range slices.Backward(r.stops) {
		errs = append(errs, stop(ctx))
		if ctx.Err() != nil {
			return nil
		}
	}
	r.work.Wait()
	return errors.Join(errs...)
}
