package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

// open returns a Locker on an embedded node, so that the examples need no server.
func open(node *testutil.Node, opts ...core.Option) *core.Locker {
	locker, err := core.New([]redis.UniversalClient{node.Client()}, opts...)
	if err != nil {
		log.Fatal(err)
	}
	return locker
}

// After the release, the key is not granted again within the hour.
func ExampleCooldown() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node)
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(ctx, core.Cooldown(time.Hour)); err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryAcquire(ctx, "report")
	var why *core.OpError
	fmt.Println(errors.As(err, &why) && why.Held == core.HeldCooldown, why.RetryAfter > 59*time.Minute)
	// Output: true true
}

// The lease outlives the request in which it was acquired.
func ExampleDetached() {
	node := testutil.StartNode()
	defer node.Close()
	locker := open(node)
	defer locker.Close(context.Background())

	request, cancel := context.WithCancel(context.Background())
	lease, err := locker.Acquire(request, "import", core.Detached(true), core.MaxHold(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(context.Background())
	cancel()
	fmt.Println(request.Err(), lease.Context().Err())
	// Output: context canceled <nil>
}

// A holder that hangs loses its lease.
func ExampleMaxHold() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node)
	defer locker.Close(ctx)

	err := locker.Do(ctx, "import", func(ctx context.Context) error {
		<-ctx.Done() // hangs
		return context.Cause(ctx)
	}, core.MaxHold(200*time.Millisecond))
	var lost *core.OpError
	fmt.Println(errors.Is(err, core.ErrLost), errors.As(err, &lost) && lost.Reason == core.LossMaxHold)
	// Output: true true
}

// MaxWait limits the wait, not the work.
func ExampleMaxWait() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	one, other := open(node), open(node)
	defer one.Close(ctx)
	defer other.Close(ctx)

	err := one.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		_, err := other.Acquire(context.Background(), core.Key("invoice", "42"), core.MaxWait(200*time.Millisecond))
		return err
	})
	fmt.Println(errors.Is(err, core.ErrHeld))
	// Output: true
}

// Metrics and lockctl show the name. There may be many keys, but names must be few.
func ExampleName() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node)
	defer locker.Close(ctx)

	err := locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		state, err := locker.Inspect(ctx, core.Key("invoice", "42"))
		if err != nil {
			return err
		}
		fmt.Println(state.Holder.Name)
		return nil
	}, core.Name("invoices"))
	if err != nil {
		log.Fatal(err)
	}
	// Output: invoices
}

// A note identifies the holder of a key, in Inspect and in lockctl.
func ExampleNote() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node, core.Note("web-7f9c, eu-west-1"))
	defer locker.Close(ctx)

	err := locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		state, err := locker.Inspect(ctx, core.Key("invoice", "42"))
		if err != nil {
			return err
		}
		fmt.Println(state.Holder.Note)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: web-7f9c, eu-west-1
}

// The mail is sent at most once a week.
func ExampleRetention() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node, core.Retention(7*24*time.Hour))
	defer locker.Close(ctx)

	mail := func(context.Context) error { fmt.Println("sent"); return nil }
	fmt.Println(locker.Once(ctx, core.Key("digest", "alice"), mail))
	err := locker.Once(ctx, core.Key("digest", "alice"), mail)
	fmt.Println(errors.Is(err, core.ErrDone))
	// Output:
	// sent
	// <nil>
	// true
}

// After a crash, the key is free in 3 s instead of 10 s. Three times as many renewals are sent.
func ExampleTTL() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node, core.TTL(3*time.Second))
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, core.Key("invoice", "42"))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	fmt.Println(time.Until(lease.ValidUntil()) < 3*time.Second)
	// Output: true
}

// A short TTL needs a small clock window, which must be the same in every process.
func ExampleWithClockWindow() {
	node := testutil.StartNode()
	defer node.Close()
	nodes := []redis.UniversalClient{node.Client()}
	_, err := core.New(nodes, core.TTL(time.Second))
	fmt.Println(errors.Is(err, core.ErrInvalid))
	locker, err := core.New(nodes, core.TTL(time.Second), core.WithClockWindow(100*time.Millisecond))
	fmt.Println(err)
	defer locker.Close(context.Background())
	// Output:
	// true
	// <nil>
}

// Two applications on the same nodes share nothing if their prefixes differ.
func ExampleWithKeyPrefix() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	shop, bank := open(node, core.WithKeyPrefix("shop:")), open(node, core.WithKeyPrefix("bank:"))
	defer shop.Close(ctx)
	defer bank.Close(ctx)

	err := shop.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		return bank.TryDo(ctx, core.Key("invoice", "42"), func(context.Context) error { return nil })
	})
	fmt.Println(err)
	// Output: <nil>
}

// The logger gets such warnings, lost leases, unconfirmed releases and nodes in trouble.
func ExampleWithLogger() {
	node := testutil.StartNode()
	defer node.Close()
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: untimed}))
	locker := open(node, core.WithLogger(logger), core.TTL(2*time.Minute))
	defer locker.Close(context.Background())
	// Output: level=WARN msg="lockkit: TTL is above a minute: the key of a holder that dies or is revoked stays taken for that long, and nothing frees it sooner" ttl=2m0s
}

// To raise the TTL, raise the max TTL first, in every process.
func ExampleWithMaxTTL() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node, core.WithMaxTTL(30*time.Second))
	defer locker.Close(ctx)

	_, err := locker.With(core.TTL(30 * time.Second))
	fmt.Println(err)
	_, err = locker.With(core.TTL(time.Minute))
	fmt.Println(errors.Is(err, core.ErrInvalid))
	// Output:
	// <nil>
	// true
}

// This observer counts refused acquisitions. The observer of package otellock makes metrics and traces.
func ExampleWithObserver() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	refused := 0
	locker := open(node, core.WithObserver(core.Observer{
		Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			return ctx, func(o core.Outcome) {
				if op.Kind == core.OpAcquire && o.Err != nil {
					refused++
				}
			}
		},
	}))
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, core.Key("invoice", "42"))
	if err != nil {
		log.Fatal(err)
	}
	_, _ = locker.TryAcquire(ctx, core.Key("invoice", "42")) // refused, because the key is held
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("refused:", refused)
	// Output: refused: 1
}

// A primary with replicas is one node. After a failover, the latest locks may be missing.
func ExampleWithReplicaLag() {
	ctx, node := context.Background(), testutil.StartNode() // in place of a primary behind Sentinels
	defer node.Close()
	locker := open(node, core.WithRestartGuard(true),
		core.WithReplicaLag(3*time.Second), // min-replicas-max-lag 2, plus a second
		core.TTL(20*time.Second))           // longer than a promotion takes
	defer locker.Close(ctx)
	if err := admin.Provision(ctx, locker); err != nil { // once, because the node is new
		log.Fatal(err)
	}
	fmt.Println(locker.TryDo(ctx, core.Key("invoice", "42"), func(context.Context) error { return nil }))
	// Output: <nil>
}

// With the guard, a node that loses its data grants nothing until the leases that it may have forgotten are over.
func ExampleWithRestartGuard() {
	ctx, node := context.Background(), testutil.StartNode()
	defer node.Close()
	locker := open(node, core.WithRestartGuard(true))
	defer locker.Close(ctx)
	if err := admin.Provision(ctx, locker); err != nil { // once, because the node is new
		log.Fatal(err)
	}
	work := func(context.Context) error { return nil }
	fmt.Println(locker.TryDo(ctx, core.Key("invoice", "42"), work))

	node.Flush()
	err := locker.TryDo(ctx, core.Key("invoice", "43"), work)
	fmt.Println(errors.Is(err, core.ErrUnavailable))
	// Output:
	// <nil>
	// true
}
