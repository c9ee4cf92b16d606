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

// A Locker is a core.Locker as one process has it: with clients of its own, and
// a network of its own to the nodes. Constructors of the adapters take the Locker in it.
type Locker struct {
	*core.Locker
	Nodes []*testutil.Node // which all replicas share
	Link  *testutil.Link   // from this process to all nodes
	Links []*testutil.Link // to each of them, in the order of Nodes

	tb    testing.TB
	opts  []core.Option
	loses sync.WaitGroup // calls of Lose, which the nodes must outlive
}

// New returns a Locker on three embedded nodes, which are provisioned: the first
// lock need not wait. It is closed at the end of the test, and takes away the
// leases that are still held then. It logs nothing unless opts say so.
func New(tb testing.TB, opts ...core.Option) *Locker {
	tb.Helper()
	return NewOn(tb, testutil.NewNodes(tb, 3), opts...)
}

// NewOn is [New] on nodes of the test's own, of any number, which it provisions.
func NewOn(tb testing.TB, nodes []*testutil.Node, opts ...core.Option) *Locker {
	tb.Helper()
	l := start(tb, nodes, opts)
	if err := admin.Provision(tb.Context(), l.Locker); err != nil {
		tb.Fatal(err)
	}
	return l
}

// Replica returns the Locker of one more process on the same nodes. Its options
// are those of l, and then opts. It is closed at the end of the test, as l is.
func (l *Locker) Replica(opts ...core.Option) *Locker {
	l.tb.Helper()
	return start(l.tb, l.Nodes, append(l.opts[:len(l.opts):len(l.opts)], opts...))
}

func start(tb testing.TB, nodes []*testutil.Node, opts []core.Option) *Locker {
	tb.Helper()
	l := &Locker{Nodes: nodes, Link: &testutil.Link{}, tb: tb, opts: opts}
	clients := make([]redis.UniversalClient, len(nodes))
	for i, n := range nodes {
		own := &testutil.Link{}
		c := n.ClientWith(func(o *redis.Options) {
			// As core.Open has them; and in a bubble the pool must not run dry.
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
	tb.Cleanup(l.end)
	return l
}

// end closes the Locker. What a fault keeps it waiting for fails once the process is dead, and has ended by then.
func (l *Locker) end() {
	l.loses.Wait()
	background := context.Background() //nolint:forbidigo // the test's context has ended
	over, cancel := context.WithCancel(background)
	cancel() // what is still held is taken away
	_ = l.Close(over)
	l.Link.Kill()
	ctx, cancel := context.WithTimeout(background, 10*time.Second) // a Link keeps a request for as long as it was told to
	defer cancel()
	if err := l.Close(ctx); err != nil {
		l.tb.Errorf("locktest: closing the Locker: %v", err)
	}
}
