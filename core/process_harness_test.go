package core

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

func init() { logging.Disable() } // go-redis prints each failed dial

// A world is a set of embedded nodes and the processes that lock on them.
type world struct {
	t     *testing.T
	nodes []*testutil.Node
	// serving returns the server that a new connection to node i reaches; nil = nodes[i].
	serving     func(i int) *testutil.Node
	dialling    func(ctx context.Context, i int) error // called before a dial to node i if serving is set; may be nil
	adjust      func(o *redis.Options)                 // sets more options of the clients; may be nil
	connections int                                    // the pool size of each client; 0 = many
	// known is the pool size that the Locker sees; 0 = the real one. The real pool stays large, because a client cannot
	// wait for a connection in a bubble: go-redis shares timers with clients outside of it.
	known int
	heeds bool // the clients heed deadlines, as the clients of Open do
}

// A process is a Locker with its own network links to the nodes.
type process struct {
	*Locker
	links []*coretest.Link
}

// bubble runs f with n embedded nodes in a synctest bubble.
func bubble(t *testing.T, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	bubbleNow(t, n, f)
}

// bubbleNow is like bubble, but does not make the test parallel.
func bubbleNow(t *testing.T, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &world{t: t, nodes: testutil.NewNodes(t, n)})
	})
}

// bubbles runs f once for each case, as a subtest in its own bubble.
func bubbles[C any](t *testing.T, n int, cases map[string]C, f func(t *testing.T, w *world, c C)) {
	t.Helper()
	for name, c := range cases {
		bubbleNamed(t, name, n, func(t *testing.T, w *world) { f(t, w, c) })
	}
}

// bubbleNamed runs f as bubble does, in a subtest.
func bubbleNamed(t *testing.T, name string, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, n, f) })
}

var (
	quietly   = WithLogger(slog.New(slog.DiscardHandler))
	untouched = option(func(p *policy) { p.ReadOnly = true }) // no background requests to nodes
)

// process makes a Locker, and declares the nodes without a guard record new.
func (w *world) process(opts ...Option) *process {
	w.t.Helper()
	p := w.stranger(opts...)
	if err := p.Provision(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// stranger makes a Locker without declaring nodes new.
func (w *world) stranger(opts ...Option) *process {
	w.t.Helper()
	p := &process{}
	var clients []redis.UniversalClient
	for i, n := range w.nodes {
		for _, source := range coretest.Sources() { // later a client would need one more message to load a script
			if _, err := n.Exec("SCRIPT", "LOAD", source); err != nil {
				w.t.Fatal(err)
			}
		}

		k := &coretest.Link{}
		c := n.ClientWith(func(o *redis.Options) {
			o.PoolSize = cmp.Or(w.connections, 2000)
			o.MaxRetries, o.ContextTimeoutEnabled = -1, w.heeds
			if w.serving != nil {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if w.dialling != nil {
						if err := w.dialling(ctx, i); err != nil {
							return nil, err
						}
					}
					return w.serving(i).Dial(ctx, network, addr)
				}
			}
			if w.adjust != nil {
				w.adjust(o)
			}
		})

		c.Options().MaxActiveConns = w.known // the pool exists already, without this bound
		c.AddHook(k)
		clients, p.links = append(clients, c), append(p.links, k)
	}

	var err error
	if p.Locker, err = New(clients, append([]Option{quietly}, opts...)...); err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // Close ends the leases that are still held
		p.Close(ctx)
		for _, k := range p.links {
			k.Mend()
		}
		p.e.Tasks.Close()
		p.e.WaitFor(p.e.Tasks.Empty(), nil, time.Hour)
	})
	return p
}

// unfit makes p find out that node i rejects its password. The returned function makes the node fit again.
func (w *world) unfit(p *process, i int) (fit func()) {
	w.nodes[i].Refuse("INFO", "WRONGPASS invalid username-password pair")
	p.e.CheckAll()
	return func() {
		w.nodes[i].Refuse("INFO", "")
		p.e.CheckAll()
	}
}

// wantAtEase checks that p takes no node for one in trouble. Such a node gets one probe at a time, so the second of two
// simultaneous requests is not sent. The node timeout passes first: only then does a request that has ended, but is
// still counted, look like trouble.
func (w *world) wantAtEase(p *process) {
	w.t.Helper()
	time.Sleep(2 * p.p.nodeTimeout)
	for _, n := range w.nodes {
		n.Slow(time.Millisecond)
	}

	var looks sync.WaitGroup
	for range 2 {
		looks.Go(func() {
			state, _ := p.Inspect(w.t.Context(), "nobody's")
			for _, n := range state.Nodes {
				if n.Verdict == VerdictCircuitOpen {
					w.t.Errorf("node %d is left alone: %v", n.Node, n.Err)
				}
			}
		})
	}
	looks.Wait()
}

func (w *world) acquire(p *process, key string) *Lease {
	w.t.Helper()
	lease, err := p.TryAcquire(w.t.Context(), key)
	if err != nil {
		w.t.Fatalf("acquire: %v", err)
	}
	return lease
}

// patientTry makes TryAcquire wait for an hour between two attempts. With a shorter deadline it makes one attempt.
func patientTry(l *Locker) *Locker {
	l.p.retryMin, l.p.retryMax = time.Hour, time.Hour
	l.e.jitter = func(n int64) int64 { return n - 1 }
	return l
}

func (w *world) release(lease *Lease) {
	w.t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}

// everywhere acquires key, and releases it when all requests have been sent and nothing more happens at this instant.
// An earlier release would not ask the nodes that were not needed for the grant.
func (w *world) everywhere(p *process, key string) {
	w.t.Helper()
	lease := w.acquire(p, key)
	synctest.Wait()
	w.release(lease)
	synctest.Wait()
}

// owner returns the attempt that owns key on node i, or "" if there is none.
func (w *world) owner(p *process, i int, key string) string {
	w.t.Helper()
	r := w.resource(p, i, key)
	if r.Expiry == 0 {
		return ""
	}
	return r.Owner
}

// resource returns the record of key on node i.
func (w *world) resource(p *process, i int, key string) testutil.Resource {
	w.t.Helper()
	v := must(w.nodes[i].Exec("GET", p.e.Keys.Resource(key)))
	s, _ := v.(string)
	return must(testutil.ParseResource(s))
}

// change changes the record of key on node i.
func (w *world) change(p *process, i int, key string, by func(r *testutil.Resource)) {
	w.t.Helper()
	r := w.resource(p, i, key)
	by(&r)
	if _, err := w.nodes[i].Exec("SET", p.e.Keys.Resource(key), r.String(), "PX", (24 * time.Hour).Milliseconds()); err != nil {
		w.t.Fatal(err)
	}
}

// forget removes the lease on key from node i, as if a write had not been replicated before a failover.
func (w *world) forget(p *process, i int, key string) {
	w.t.Helper()
	w.change(p, i, key, func(r *testutil.Resource) { r.Expiry, r.Owner = 0, "" })
}

// pass lets d pass, and waits until all goroutines are blocked.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until lets time pass in steps of a millisecond until holds returns true. If that takes a minute, the test fails.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for range time.Minute / time.Millisecond {
		if holds() {
			return
		}
		w.pass(time.Millisecond)
	}
	w.t.Fatalf("not within a minute: %s", what)
}

func wantErr(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want %v", err, target)
	}
}

// name returns the name that the attempt has on the nodes.
func (lease *Lease) name() string { return lease.attempt.lock.Waiter().Name }

// to returns the request of a round to node i.
func to(r *node.Round, i int) wire.Request {
	if r.Each != nil {
		return r.Each(i)
	}
	return r.Request
}

// askOf sends the request of a round to node i, without beginning the round.
func askOf(r *node.Round, i int) quorum.Vote { return askAlone(r.Group, i, to(r, i)) }

// askAlone sends a request to node i, and returns its vote.
func askAlone(g *node.Group, i int, q wire.Request) quorum.Vote {
	votes, err := coretest.Ask(g.Nodes[i].Client, g.Head.Load(), g.Buckets[0].Memory(i), time.Now(), q)
	if err != nil {
		return coretest.VoteOf(wire.Reply{}, err)
	}
	return votes[0]
}

// isClosed reports whether c is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// renewAlone renews the lease on node 0, as if confirmed were the last expiry that this node has confirmed.
func (lease *Lease) renewAlone(confirmed wire.NodeTime) quorum.Vote {
	q := lease.attempt.lock.Renew(lease.attempt.p.ttlMillis, 1, func(int) wire.Renew {
		return wire.Renew{Token: lease.attempt.token, Confirmed: confirmed, Turn: lease.attempt.p.turnMillis}
	})(0)
	return askAlone(lease.attempt.e.Group, 0, q)
}
