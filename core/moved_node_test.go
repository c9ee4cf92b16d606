package core

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// This file tests names that move to another server, while the old server lives on but is not the node any more.

// notTheOne has the ways in which a server shows that it is not the node. Each function changes a server accordingly.
var notTheOne = map[string]func(n *testutil.Node){
	"a replica, by the guard": func(n *testutil.Node) { n.SetReplica(true) },
	"a replica with another clock": func(n *testutil.Node) {
		n.SetReplica(true)
		n.StepClock(time.Hour)
	},
	"a replica":               refusing("READONLY You can't write against a read only replica."),
	"a replica that is cut":   refusing("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
	"loading":                 refusing("LOADING Redis is loading the dataset in memory"),
	"a sentinel":              refusing("ERR unknown command 'evalsha', with args beginning with: "),
	"of a cluster":            refusing("MOVED 1234 127.0.0.1:7001"),
	"of a cluster that fails": refusing("CLUSTERDOWN Hash slot not served"),
	"of no cluster":           refusing("ERR This instance has cluster support disabled"),
	"a stranger":              refusing("NOAUTH Authentication required."),
	"without its database":    refusing("ERR DB index is out of range"),
	"without its replicas":    refusing("NOREPLICAS Not enough good replicas to write."),
	"without its disk":        refusing("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
}

func refusing(err string) func(n *testutil.Node) {
	return func(n *testutil.Node) {
		n.Refuse("EVAL", err)
		n.Refuse("EVALSHA", err)
	}
}

// moving returns a function that makes new connections to node i lead to another server. That function returns the old
// server.
func (w *world) moving() (move func(i int) (before *testutil.Node)) {
	fresh := testutil.NewNodes(w.t, len(w.nodes))
	var mu sync.Mutex
	now := append([]*testutil.Node{}, w.nodes...)
	w.serving = func(i int) *testutil.Node {
		mu.Lock()
		defer mu.Unlock()
		return now[i]
	}
	return func(i int) *testutil.Node {
		mu.Lock()
		defer mu.Unlock()
		before := now[i]
		now[i] = fresh[i]
		return before
	}
}

// fill sends n requests to each node at once. Afterwards n connections to each node are idle.
func (w *world) fill(p *process, n int) {
	w.t.Helper()
	for i, node := range p.e.Nodes {
		w.serving(i).Slow(10 * time.Millisecond)
		var all sync.WaitGroup
		for range n {
			all.Go(func() { node.Client.Get(w.t.Context(), "nothing") })
		}
		all.Wait()
		w.serving(i).Slow(0)
		if idle := node.Client.PoolStats().IdleConns; idle < uint32(n) {
			w.t.Fatalf("%d idle connections", idle)
		}
	}
}

// Whatever a server answers to show that it is not the node, the new server is asked within a renewal, although many
// connections lead to the old one. A lease that is held survives, and the new server notifies waiters.
func TestNodeThatSaysNotMeIsLookedForAnew(t *testing.T) {
	bubbles(t, 3, notTheOne, func(t *testing.T, w *world, change func(*testutil.Node)) {
		move := w.moving()
		p := w.process(WithRestartGuard(true))
		lease := w.holds(p, "k")
		w.fill(p, 30)
		waiter := make(chan error, 1)
		go func() {
			next, err := p.Acquire(t.Context(), "k")
			if err == nil {
				err = next.Release(t.Context())
			}
			waiter <- err
		}()
		w.pass(time.Second)

		for i := range w.nodes {
			change(move(i))
		}
		w.pass(p.p.renewEvery + p.p.ttl/10)
		for i, n := range w.nodes {
			if w.serving(i).Calls()["EVALSHA"] == 0 {
				t.Errorf("node %d: nobody asks the new server", i)
			}
			before := n.Calls()["EVALSHA"]
			w.pass(p.p.renewEvery)
			if late := n.Calls()["EVALSHA"] - before; late > 0 {
				t.Errorf("node %d: the old server is asked %d times more", i, late)
			}
		}

		w.pass(3 * p.p.ttl)
		if err := context.Cause(lease.Context()); err != nil {
			t.Fatalf("lost: %v", err)
		}
		synctest.Wait()
		w.release(lease)
		start := time.Now()
		if err := <-waiter; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("the waiter has the key %v after its release", took)
		}
	})
}

// If a server is not the node any more, but the name still leads to it, the client makes only a few new connections.
func TestNodeThatStaysAwayIsSoughtSparingly(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true))
		w.nodes[0].SetReplica(true)
		dialled := w.nodes[0].Calls()["HELLO"]
		for start := time.Now(); time.Since(start) < 5*time.Second; {
			w.release(w.acquire(p, "k"))
			time.Sleep(10 * time.Millisecond)
		}
		if n := w.nodes[0].Calls()["HELLO"] - dialled; n > 30 {
			t.Errorf("%d new connections within 5s", n)
		}
		if lease := w.acquire(p, "k"); context.Cause(lease.Context()) != nil {
			t.Error("lost")
		}
	})
}

type ownClient struct{ *redis.Client }

type opaqueClient struct{ redis.UniversalClient }

// A lease survives if the names move to the replicas of real servers, with each kind of client.
func TestNameMovesAtAFailover(t *testing.T) {
	for name, of := range map[string]func(r *rig, addrs []string) *process{
		"open": func(r *rig, addrs []string) *process {
			urls := make([]string, len(addrs))
			for i, addr := range addrs {
				urls[i] = "redis://" + addr
			}
			l, err := Open(urls, append(append([]Option{}, brief...), sturdy, WithRestartGuard(true))...)
			if err != nil {
				r.Fatal(err)
			}
			r.Cleanup(func() { l.Close(over()) })
			testutil.Await(r, "provisioned", func() bool { return l.Provision(r.Context()) == nil })
			return &process{Locker: l}
		},
		"a client": func(r *rig, addrs []string) *process {
			return r.reaching(addrs, func(c *redis.Client) redis.UniversalClient { return c })
		},
		"a wrapped client": func(r *rig, addrs []string) *process {
			return r.reaching(addrs, func(c *redis.Client) redis.UniversalClient { return ownClient{c} })
		},
		"an opaque client": func(r *rig, addrs []string) *process {
			return r.reaching(addrs, func(c *redis.Client) redis.UniversalClient { return opaqueClient{c} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := onRedis(t, 3)
			replicas := testutil.NewServers(t, 3, "--repl-diskless-sync-delay", "0")
			var proxies []*testutil.Proxy
			var addrs []string
			for i, s := range r.servers {
				host, port := split(s.Addr())
				if err := replicas[i].Client().(*redis.Client).ReplicaOf(t.Context(), host, port).Err(); err != nil {
					t.Fatal(err)
				}
				proxies = append(proxies, testutil.NewProxy(t, s.Addr()))
				addrs = append(addrs, proxies[i].Addr())
			}

			p := of(r, addrs)
			lease := r.acquire(p, "k")
			var all sync.WaitGroup
			for _, n := range p.e.Nodes { // each pool gets several connections
				for range 10 {
					all.Go(func() { n.Client.BLPop(context.Background(), time.Second, "nothing") })
				}
			}
			all.Wait()

			for i, s := range replicas {
				host, port := split(s.Addr())
				c := s.Client().(*redis.Client)
				testutil.Await(t, "in sync", func() bool { return c.Get(t.Context(), p.e.Keys.Resource("k")).Err() == nil })
				if err := c.ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
					t.Fatal(err)
				}
				if err := r.servers[i].Client().(*redis.Client).ReplicaOf(t.Context(), host, port).Err(); err != nil {
					t.Fatal(err)
				}
				proxies[i].Move(s.Addr())
			}

			until := lease.ValidUntil().Add(100 * time.Millisecond)
			testutil.Await(t, "renewed or lost", func() bool { return lease.Context().Err() != nil || lease.ValidUntil().After(until) })
			if err := context.Cause(lease.Context()); err != nil {
				t.Errorf("lost: %v", err)
			}
		})
	}
}

// reaching makes a Locker with clients that as returns.
func (r *rig) reaching(addrs []string, as func(*redis.Client) redis.UniversalClient) *process {
	r.Helper()
	var clients []redis.UniversalClient
	for _, addr := range addrs {
		c := redis.NewClient(&redis.Options{Addr: addr})
		r.Cleanup(func() { c.Close() })
		clients = append(clients, as(c))
	}
	return r.with(clients, sturdy, WithRestartGuard(true))
}

func split(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err)
	}
	return host, port
}

// If the options of a client make it repeat for long, it still gives up when the call ends. That holds for greetings,
// for dials, and for the user's code for new connections. So after an outage of 3s, locks are granted before a lease
// that is held ends, and that lease survives.
func TestRetriesOfTheClientOutlastNoOutage(t *testing.T) {
	patient := func(o *redis.Options) {
		o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = 10, 5*time.Second, 30*time.Second
		o.DialerRetries, o.DialerRetryTimeout, o.PoolTimeout = 20, 10*time.Second, time.Hour
	}
	for name, c := range map[string]struct {
		begin, end func(n *testutil.Node)
		adjust     func(o *redis.Options)
	}{
		"hung":      {(*testutil.Node).Hang, (*testutil.Node).Up, patient},
		"down":      {(*testutil.Node).Down, (*testutil.Node).Up, patient},
		"ten times": {(*testutil.Node).Down, (*testutil.Node).Up, func(o *redis.Options) { o.MaxRetries = 10 }},
		"slow to answer": {func(n *testutil.Node) { n.Slow(2 * time.Second) }, func(n *testutil.Node) { n.Slow(0) }, func(o *redis.Options) {
			patient(o)
			o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return cn.Ping(ctx).Err() }
		}},
		"loading": {func(n *testutil.Node) { n.Refuse("HELLO", "LOADING Redis is loading the dataset in memory") },
			func(n *testutil.Node) { n.Refuse("HELLO", "") }, func(o *redis.Options) {
				patient(o)
				o.Password = "p" // the client authenticates although the greeting failed
			}},
	} {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			w.adjust = c.adjust
			p := w.process(TTL(10 * time.Second))
			lease := w.holds(p, "k")
			for _, n := range w.nodes {
				n.Restart() // breaks the connections, so the client must make new ones
				c.begin(n)
			}

			w.pass(3 * time.Second)
			for _, n := range w.nodes {
				c.end(n)
			}

			for range 100 {
				other, err := p.TryAcquire(t.Context(), "other")
				if err == nil {
					err = other.Release(t.Context())
				}
				if err == nil {
					break
				}
				w.pass(100 * time.Millisecond)
			}
			if !time.Now().Before(lease.ValidUntil()) {
				t.Error("no lock was to be had in time after the outage")
			}

			w.pass(30 * time.Second)
			if err := context.Cause(lease.Context()); err != nil {
				t.Errorf("lost: %v", err)
			}
		})
	}
}

// The waits of a call inside its client end with the node timeout, or a little later.
func TestCallsEndWithTheirDeadline(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var calls, longest atomic.Int64
		w.adjust = func(o *redis.Options) {
			o.MaxRetries, o.MinRetryBackoff, o.MaxRetryBackoff = 1000, time.Minute, time.Minute
			o.OnConnect = func(ctx context.Context, _ *redis.Conn) error {
				began := time.Now()
				<-ctx.Done()
				calls.Add(1)
				longest.Store(max(longest.Load(), int64(time.Since(began))))
				return ctx.Err()
			}
		}

		p := w.stranger(untouched)
		for what, call := range map[string]func(){
			"New":        func() {},
			"TryAcquire": func() { p.TryAcquire(t.Context(), "k") },
			"Inspect":    func() { p.Inspect(t.Context(), "k") },
			"Ready":      func() { p.Ready(t.Context()) },
			"Provision":  func() { p.Provision(t.Context()) },
			"Acquire": func() {
				ctx, cancel := context.WithTimeout(t.Context(), p.p.nodeTimeout)
				defer cancel()
				p.Acquire(ctx, "k")
			},
		} {
			call()
			w.pass(10 * p.p.nodeTimeout)

			if calls.Swap(0) == 0 {
				t.Errorf("%s: nothing was tried", what)
			}
			if d := time.Duration(longest.Swap(0)); d > p.p.nodeTimeout+p.p.nodeTimeout/8 {
				t.Errorf("%s: the client waits for %v, the node timeout is %v", what, d, p.p.nodeTimeout)
			}
		}
	})
}
