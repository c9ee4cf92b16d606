package core_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

// A node may be a primary behind Sentinels. Here all connections use TLS, with certificates of a private CA.
func ExampleWithTLS() {
	pem, err := os.ReadFile("/etc/redis/ca.pem")
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatal("no certificate in the file of the CA")
	}
	locker, err := core.Open([]string{"rediss-sentinel://sentinel-a:26379?addr=sentinel-b:26379&addr=sentinel-c:26379&master_name=mymaster"},
		core.WithTLS(&tls.Config{RootCAs: pool}),
		core.WithRestartGuard(true), core.WithReplicaLag(11*time.Second)) // because the node has replicas
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
}

// The nodes are independent Redis servers. Call Provision in the script that sets them up, not in the program.
func ExampleOpen() {
	ctx := context.Background()
	locker, err := core.Open([]string{"redis://redis-a:6379", "redis://redis-b:6379", "redis://redis-c:6379"})
	if err != nil {
		log.Fatal(err) // says what is wrong with the options or the nodes, and how to fix it
	}
	defer locker.Close(ctx) // waits until all leases are released

	err = locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		return nil // the work
	})
	if err != nil {
		log.Print(err)
	}
}

// New returns all problems in one error.
func ExampleNew() {
	node := testutil.StartNode()
	defer node.Close()
	client := node.Client()

	_, err := core.New([]redis.UniversalClient{client, nil, client},
		core.MaxWait(-time.Second), core.WithKeyPrefix("{shop}"))
	fmt.Println(err)
	// Output:
	// lockkit: invalid argument: key prefix "{shop}" must have 1 to 64 bytes and no braces
	// max wait is -1s, must not be negative
	// node 1: client is nil
	// node 2: the same client as node 0
}

func ExampleLocker_Do() {
	ctx := context.Background()
	nodes := []*testutil.Node{testutil.StartNode(), testutil.StartNode(), testutil.StartNode()}
	for _, n := range nodes {
		defer n.Close()
	}
	locker, err := core.New(testutil.Clients(nodes))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	if err := admin.Provision(ctx, locker); err != nil { // once, because these nodes are new
		log.Fatal(err)
	}
	pay := func(_ context.Context, invoice int, token uint64) error {
		fmt.Println("paying", invoice, "with a token:", token > 0)
		return nil
	}

	err = locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		return pay(ctx, 42, lease.FencingToken()) // ctx ends if the lease is lost
	})
	fmt.Println("error:", err)
	// Output:
	// paying 42 with a token: true
	// error: <nil>
}

// Once records a success. For the retention, later calls in any process return ErrDone.
func ExampleLocker_Once() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	send := func(ctx context.Context) error {
		fmt.Println("sending the mail")
		lease, _ := core.FromContext(ctx)
		return lease.Complete(ctx, []byte("message 7")) // or return nil if there is no result to keep
	}
	fmt.Println("first:", locker.Once(ctx, core.Key("welcome mail", "alice"), send))

	err = locker.Once(ctx, core.Key("welcome mail", "alice"), send)
	var op *core.OpError
	if errors.Is(err, core.ErrDone) && errors.As(err, &op) {
		fmt.Printf("second: done already, result %q\n", op.Record.Result)
	}
	// Output:
	// sending the mail
	// first: <nil>
	// second: done already, result "message 7"
}

// The context passed to Acquire governs both the wait and the life of the lease. MaxWait limits the wait alone: a
// deadline of the context would end the lease, too.
func ExampleLocker_Acquire() {
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()}, core.MaxWait(200*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lease, err := locker.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx) // works even if ctx has ended

	_, err = locker.Acquire(ctx, "report")
	fmt.Println("waited long enough:", errors.Is(err, core.ErrHeld))
	fmt.Println("the lease goes on:", lease.Context().Err() == nil)

	cancel()
	<-lease.Context().Done()
	fmt.Println("the lease ended:", context.Cause(lease.Context()))
	// Output:
	// waited long enough: true
	// the lease goes on: true
	// the lease ended: context canceled
}

// A store that rejects a token smaller than the largest it has seen is safe from a holder that was paused while its
// lease ended. In SQL: UPDATE account SET balance = $1, token = $2 WHERE id = $3 AND token <= $2.
func ExampleLease_FencingToken() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	var seen uint64
	write := func(who string, token uint64) {
		if token < seen {
			fmt.Println(who, "is refused")
			return
		}
		seen = token
		fmt.Println(who, "writes")
	}
	var tokens []uint64
	for range 2 {
		if err := locker.Do(ctx, core.Key("account", "7"), func(ctx context.Context) error {
			lease, _ := core.FromContext(ctx)
			tokens = append(tokens, lease.FencingToken())
			return nil
		}); err != nil {
			log.Fatal(err)
		}
	}
	write("second holder", tokens[1])
	write("first holder, late,", tokens[0])
	// Output:
	// second holder writes
	// first holder, late, is refused
}

// With returns a Locker that has other options and uses the same connections.
func ExampleLocker_With() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx) // also closes the Lockers derived from it

	impatient, err := locker.With(core.Name("reports"), core.MaxWait(200*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locker.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	_, err = impatient.Acquire(ctx, "report")
	fmt.Println("held by another:", errors.Is(err, core.ErrHeld))
	// Output: held by another: true
}

// Code that does not know whether its caller holds the key uses Reentrant. After a failure, Cooldown keeps the key
// taken, so that no process tries again at once.
func ExampleReentrant() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()}, core.Reentrant(true))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	book := func(ctx context.Context) error {
		return locker.Do(ctx, core.Key("account", "7"), func(context.Context) error {
			fmt.Println("booking")
			return errors.New("the bank does not answer")
		})
	}

	err = locker.Do(ctx, core.Key("account", "7"), func(ctx context.Context) error {
		err := book(ctx) // under the same lease
		if lease, _ := core.FromContext(ctx); err != nil {
			lease.Release(ctx, core.Cooldown(time.Minute))
		}
		return err
	})
	fmt.Println("error:", err)
	err = locker.TryDo(ctx, core.Key("account", "7"), book)
	fmt.Println("within the minute:", errors.Is(err, core.ErrHeld))
	// Output:
	// booking
	// error: the bank does not answer
	// within the minute: true
}

func ExampleLease_Extend() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)

	lease, err := locker.Acquire(ctx, "import", core.MaxHold(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	for range 3 {
		// Do a part of the work here, in less than 30 seconds. If the process hangs, the lease ends.
		if err := lease.Extend(30 * time.Second); err != nil {
			log.Fatal(err) // the lease is over
		}
	}
	fmt.Println(lease.Context().Err())
	// Output: <nil>
}

// A transfer holds both accounts, in whatever order they are named, and writes each row with the token of its own key.
func ExampleLocker_DoAll() {
	ctx := context.Background()
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	move := func(ctx context.Context, from, to *core.Lease) error {
		// UPDATE account SET balance = …, fence = $token WHERE id = $id AND fence <= $token, for both, in one transaction
		fmt.Println("from", from.Key(), "to", to.Key())
		return nil
	}

	err = locker.DoAll(ctx, []string{"bob", "alice"}, func(ctx context.Context) error {
		from, _ := locker.Holding(ctx, "bob")
		to, _ := locker.Holding(ctx, "alice")
		return move(ctx, from, to)
	}, core.MaxWait(5*time.Second))
	fmt.Println(err)
	// Output:
	// from bob to alice
	// <nil>
}

// A stuck holder gives up its lease: its own health check ends the context with which the lease was acquired.
func Example_healthCheck() {
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(context.Background())
	check := func() error { return errors.New("no row for a minute") }

	ctx, giveWay := context.WithCancelCause(context.Background())
	defer giveWay(nil)
	lease, err := locker.Acquire(ctx, "import") // without Detached
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(context.Background())
	go func() {
		for range time.Tick(10 * time.Millisecond) { // in production, every few seconds
			if err := check(); err != nil {
				giveWay(err)
				return
			}
		}
	}()
	<-lease.Context().Done() // the lease is not renewed any more
	fmt.Println(context.Cause(lease.Context()))
	// Output: no row for a minute
}

// A health page shows whether locks are available. Do not make it a readiness probe: when the nodes are down, the probe
// would take out all replicas at once, along with all work that needs no lock.
func ExampleLocker_Ready() {
	ctx := context.Background()
	nodes := []*testutil.Node{testutil.StartNode(), testutil.StartNode(), testutil.StartNode()}
	for _, n := range nodes {
		defer n.Close()
	}
	locker, err := core.New(testutil.Clients(nodes))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close(ctx)
	if err := admin.Provision(ctx, locker); err != nil {
		log.Fatal(err)
	}

	health := func() string {
		if err := locker.Ready(ctx); err != nil {
			return "locks: unavailable" // err has the answer of each node
		}
		return "locks: available"
	}
	nodes[0].Down()
	fmt.Println(health())
	nodes[1].Down()
	fmt.Println(health())
	// Output:
	// locks: available
	// locks: unavailable
}
