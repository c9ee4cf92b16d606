package locktest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

// A Locker is the core.Locker of one simulated process: it has its own clients,
// and its own network to the nodes. Pass the field Locker to the constructors of
// the adapters.
type Locker struct {
	*core.Locker
	Nodes []*testutil.Node // shared by all replicas
	Link  *testutil.Link   // from this process to all nodes
	Links []*testutil.Link // to each of them, in the order of Nodes

	tb    testing.TB
	opts  []core.Option
	loses sync.WaitGroup // calls of Lose, which the nodes must outlive
}

// New returns a Locker on three embedded nodes, which are provisioned: the first
// lock need not wait. The Locker is closed at the end of the test, which takes
// away the leases that are still held. It logs nothing unless opts contain a
// logger.
func New(tb testing.TB, opts ...core.Option) *Locker {
	tb.Helper()
	return NewOn(tb, testutil.NewNodes(tb, 3), opts...)
}

// NewOn is [New] on the given nodes, of any number, which it provisions.
func NewOn(tb testing.TB, nodes []*testutil.Node, opts ...core.Option) *Locker {
	tb.Helper()
	l := start(tb, nodes, opts)
	if err := admin.Provision(tb.Context(), l.Locker); err != nil {
		tb.Fatal(err)
	}
	return l
}

// Replica returns the Locker of one more process on the same nodes. Its options
// are the options of l, and then opts. It is closed at the end of the test, as l
// is.
func (l *Locker) Replica(opts ...core.Option) *Locker {
	l.tb.Helper()
	return start(l.tb, l.Nodes, append(l.opts[:len(l.opts):len(l.opts)], opts...))
}

// start returns a Locker that is closed at the end of the test.
func start(tb testing.TB, nodes []*testutil.Node, opts []core.Option) *Locker {
	tb.Helper()
	l := &Locker{
		Nodes: nodes,
		Link:  &testutil.Link{},
		tb:    tb,
		opts:  opts,
	}

	clients := make([]redis.UniversalClient, len(nodes))
	for i, n := range nodes {
		own := &testutil.Link{}
		c := n.ClientWith(func(o *redis.Options) {
			// As in core.Open, except for PoolSize: in a bubble, no command may have to wait for a connection.
			o.MaxRetries = -1
			o.DialerRetries = 1
			o.ContextTimeoutEnabled = true
			o.PoolSize = 2000
		})
		c.AddHook(l.Link)
		c.AddHook(own)
		clients[i] = c
		l.Links = append(l.Links, own)
	}

	silent := core.WithLogger(slog.New(slog.DiscardHandler))
	locker, err := core.New(clients, append([]core.Option{silent}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	l.Locker = locker
	tb.Cleanup(l.close)
	return l
}

// close closes the Locker. A fault may keep the Locker's goroutines waiting, so it also kills the network: the requests
// of these goroutines then fail, and Close waits for their end.
func (l *Locker) close() {
	l.loses.Wait()

	// With a context that has ended, Close takes away the leases that are still held.
	background := context.Background() //nolint:forbidigo // the test's context has ended
	over, cancel := context.WithCancel(background)
	cancel()
	_ = l.Close(over)

	// A Link may hold a request for a while, if a fault delays it.
	l.Link.Kill()
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		l.tb.Errorf("locktest: closing the Locker: %v", err)
	}
}
