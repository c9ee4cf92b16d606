package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests what only real servers can show: processes that are stopped and killed, real connections, and
// replication.

// A rig is a set of real servers and the processes that lock on them.
type rig struct {
	*testing.T
	servers []*testutil.Server
}

func onRedis(t *testing.T, n int) *rig {
	t.Parallel()
	return &rig{t, testutil.NewServers(t, n, "--repl-diskless-sync-delay", "0")}
}

// brief keeps these tests short: leases have a TTL of 3s and are renewed every 0.6s.
var brief = []Option{quietly, TTL(3 * time.Second), WithClockWindow(300 * time.Millisecond), withRenewEvery(600 * time.Millisecond),
	withNodeTimeout(500 * time.Millisecond)}

// sturdy overrides brief for tests in which no lease must run out. On a busy machine requests may be seconds late.
var sturdy = option(func(c *policy) {
	c.ttl, c.Window = 12*time.Second, time.Second
	withNodeTimeout(3 * time.Second).apply(c)
})

// process makes a Locker with ordinary clients of the servers.
func (r *rig) process(opts ...Option) *process {
	r.Helper()
	var clients []redis.UniversalClient
	for _, s := range r.servers {
		clients = append(clients, s.Client())
	}
	return r.with(clients, opts...)
}

// behind makes a Locker that reaches the servers through proxies, and already has connections to them.
func (r *rig) behind(opts ...Option) (*process, []*testutil.Proxy) {
	r.Helper()
	var clients []redis.UniversalClient
	var proxies []*testutil.Proxy
	for _, s := range r.servers {
		proxy := testutil.NewProxy(r, s.Addr())
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		r.Cleanup(func() { client.Close() })
		proxies, clients = append(proxies, proxy), append(clients, client)
	}

	p := r.with(clients, opts...)
	lease := r.acquire(p, "warm "+r.Name()) // subtests may share the servers
	for i := range r.servers {
		testutil.Await(r, "every node knows the scripts", func() bool { return r.owner(i, lease.Key()) == lease.name() })
	}
	r.release(lease)
	for i := range r.servers {
		testutil.Await(r, "released", func() bool { return r.owner(i, lease.Key()) == "" })
	}
	return p, proxies
}

func (r *rig) with(clients []redis.UniversalClient, opts ...Option) *process {
	r.Helper()
	l, err := New(clients, append(append([]Option{}, brief...), opts...)...)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { l.Close(over()) })
	testutil.Await(r, "provisioned", func() bool { return l.Provision(r.Context()) == nil })
	return &process{Locker: l}
}

// acquire acquires a lease. On a busy machine no answer may come in time for as long as an acquisition waits.
func (r *rig) acquire(p *process, key string) (lease *Lease) {
	r.Helper()
	testutil.Await(r, "acquired", func() bool {
		var err error
		lease, err = p.Acquire(r.Context(), key)
		if err != nil && !errors.Is(err, ErrUnavailable) {
			r.Fatal(err)
		}
		return err == nil
	})
	return lease
}

// owner returns the attempt that owns key on server i, or "" if there is none.
func (r *rig) owner(i int, key string) string {
	v := must(testutil.ParseResource(r.servers[i].Client().Get(r.Context(), "lockkit:{0}r:"+key).Val()))
	if v.Expiry == 0 {
		return ""
	}
	return v.Owner
}

// confirmedBy waits until n nodes have confirmed the lease to its holder. Only on these nodes can a renewal bring the
// lease back if a contender has asked them in between.
func (r *rig) confirmedBy(n int, lease *Lease) {
	r.Helper()
	testutil.Await(r, "confirmed", func() bool {
		lease.attempt.mu.Lock()
		defer lease.attempt.mu.Unlock()
		confirmed := 0
		for _, s := range lease.attempt.nodes {
			if s.expiry > 0 {
				confirmed++
			}
		}
		return confirmed >= n
	})
}

// refusedUntilOver makes p ask for the lease's key until it is granted, and checks that the lease is over then.
func (r *rig) refusedUntilOver(p *process, lease *Lease) {
	r.Helper()
	testutil.Await(r, "free again", func() bool {
		second, err := p.TryAcquire(r.Context(), lease.Key())
		if err != nil {
			if !errors.Is(err, ErrHeld) && !errors.Is(err, ErrUnavailable) {
				r.Fatal(err)
			}
			return false
		}
		if lease.Context().Err() == nil {
			r.Fatalf("a second holder, while the first is valid for another %v", time.Until(lease.ValidUntil()))
		}
		if second.FencingToken() <= lease.FencingToken() {
			r.Errorf("token %d after %d", second.FencingToken(), lease.FencingToken())
		}
		r.release(second)
		return true
	})
}

// release releases a lease. On a busy machine an answer may be too late, so that only a repeated release is confirmed, and
// the lease may run out before.
func (r *rig) release(lease *Lease) {
	r.Helper()
	testutil.Await(r, "released", func() bool {
		err := lease.Release(r.Context())
		return err == nil || errors.Is(err, ErrLost)
	})
}

func TestRealLifeOfALease(t *testing.T) {
	r := onRedis(t, 3)
	p, other := r.process(sturdy), r.process(sturdy)
	lease := r.acquire(p, "k")
	first := lease.ValidUntil()
	_, err := other.TryAcquire(t.Context(), "k")
	wantErr(t, err, ErrHeld)
	testutil.Await(r, "renewed twice", func() bool { return lease.ValidUntil().Sub(first) > time.Second })
	succeeds(r, lease.Release(t.Context()))
	wantErr(t, context.Cause(lease.Context()), ErrReleased)

	second := r.acquire(other, "k")
	if second.FencingToken() <= lease.FencingToken() {
		t.Errorf("token %d after %d", second.FencingToken(), lease.FencingToken())
	}
	result := "any bytes \x00\xff\r\n {}"
	succeeds(r, second.Complete(t.Context(), []byte(result)))
	_, err = p.Acquire(t.Context(), "k")
	wantErr(t, err, ErrDone)
	if op, _ := errors.AsType[*OpError](err); op.Record.Token != second.FencingToken() || string(op.Record.Result) != result {
		t.Errorf("record %+v", op.Record)
	}
}

func TestRealPausedNodes(t *testing.T) {
	r := onRedis(t, 3)
	p := r.process(sturdy)
	succeeds(r, r.acquire(p, "warm").Release(t.Context()))
	succeeds(r, r.servers[1].Pause())
	for range 5 {
		succeeds(r, r.acquire(p, "k").Release(t.Context()))
	}

	held := r.acquire(p, "held")
	succeeds(r, r.servers[2].Pause())
	_, err := p.TryAcquire(t.Context(), "k")
	wantErr(t, err, ErrUnavailable)
	wantErr(t, err, node.ErrNoAnswer)
	err = held.Release(t.Context())
	wantErr(t, err, ErrUnavailable)
	wantErr(t, err, node.ErrNoAnswer)

	succeeds(r, r.servers[1].Resume())
	succeeds(r, r.servers[2].Resume()) // both servers now execute the requests that have waited there
	for i := range r.servers {
		testutil.Await(r, "nothing is left", func() bool { return r.owner(i, "k") == "" && r.owner(i, "held") == "" })
	}
	succeeds(r, r.acquire(p, "k").Release(t.Context()))
}

// If node 1 has forgotten the lease and node 2 never had it, these two are up, but do not grant the key together while
// the lease lasts.
func TestRealKillAndRestartEmptyInsideALease(t *testing.T) {
	r := onRedis(t, 3)
	other := r.process()
	holder, proxies := r.behind()
	proxies[2].Refuse(true)
	proxies[2].Cut()
	lease := r.acquire(holder, "k")
	for _, proxy := range proxies { // the holder must not bring the lease back to node 1
		proxy.Refuse(true)
		proxy.Cut()
	}
	succeeds(r, r.servers[1].RestartEmpty())
	r.refusedUntilOver(other, lease)
}

func TestRealRollingRestart(t *testing.T) {
	r := onRedis(t, 3)
	holder, other := r.process(sturdy), r.process(sturdy)
	lease := r.acquire(holder, "k")
	r.confirmedBy(3, lease)
	for i, s := range r.servers {
		succeeds(r, s.RestartEmpty())
		testutil.Await(r, "healed", func() bool {
			if second, err := other.TryAcquire(t.Context(), "k"); err == nil {
				t.Fatalf("a second holder: %d beside %d", second.FencingToken(), lease.FencingToken())
			}
			if err := lease.Context().Err(); err != nil {
				t.Fatalf("lost while node %d restarts: %v", i, context.Cause(lease.Context()))
			}
			return r.owner(i, "k") == lease.name()
		})
	}
	if err := lease.Context().Err(); err != nil {
		t.Fatalf("lost in a rolling restart: %v", context.Cause(lease.Context()))
	}
	succeeds(r, lease.Release(t.Context()))
}

func TestRealFlush(t *testing.T) {
	r := onRedis(t, 3)
	holder, other := r.process(sturdy), r.process(sturdy)
	lease := r.acquire(holder, "k")
	r.confirmedBy(3, lease)
	for _, s := range r.servers {
		succeeds(r, s.Client().FlushAll(t.Context()).Err())
	}
	for i := range r.servers {
		testutil.Await(r, "healed", func() bool {
			_, err := other.TryAcquire(t.Context(), "k")
			if err == nil {
				t.Fatal("a second holder")
			}
			return r.owner(i, "k") == lease.name()
		})
	}
	succeeds(r, lease.Release(t.Context()))
	succeeds(r, r.acquire(other, "k").Release(t.Context())) // when the quarantine is over
}

func TestRealClientVanishes(t *testing.T) {
	r := onRedis(t, 3)
	other := r.process()
	holder, proxies := r.behind()
	lease := r.acquire(holder, "k")
	for _, proxy := range proxies {
		proxy.Refuse(true)
		proxy.Cut()
	}
	r.refusedUntilOver(other, lease)
	wantReason(t, context.Cause(lease.Context()), LossExpired)
}

// A failover to a replica that has not received the lease starts a quarantine, and so does another failover back. Each
// time the new primary has a guard record and the scripts, and in the end its run_id is known, too. Only its
// replication history is another one.
func TestRealFailoverAndBack(t *testing.T) {
	r := onRedis(t, 2)
	var primary atomic.Int32
	dial := func(reach *atomic.Bool) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			if !reach.Load() {
				return nil, coretest.ErrRefused
			}
			return (&net.Dialer{}).DialContext(ctx, network, r.servers[primary.Load()].Addr())
		}
	}

	connect := func() (*process, *redis.Client, *atomic.Bool) {
		reach := new(atomic.Bool)
		reach.Store(true)
		// No idle connection stays with the old primary.
		c := redis.NewClient(&redis.Options{Dialer: dial(reach), ConnMaxLifetime: time.Nanosecond})
		t.Cleanup(func() { c.Close() })
		return r.with([]redis.UniversalClient{c}, WithRestartGuard(true)), c, reach
	}

	replicate := func(from, to int) {
		host, port, _ := net.SplitHostPort(r.servers[from].Addr())
		c := r.servers[to].Client()
		succeeds(r, c.SlaveOf(t.Context(), host, port).Err())
		testutil.Await(r, "in sync", func() bool {
			return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
		succeeds(r, c.SlaveOf(t.Context(), "NO", "ONE").Err())
	}

	holder, _, reach := connect()
	other, _, _ := connect()

	// The replica must know the counter of the key. On a busy machine the answer to the release may be too late, so its
	// error does not count.
	r.acquire(holder, "k").Release(t.Context())
	replicate(0, 1)

	lease := r.acquire(holder, "k") // the replica does not receive this lease
	reach.Store(false)

	for _, failover := range []func(){func() {}, func() { replicate(1, 0) }} {
		failover()
		primary.Store(1 - primary.Load())
		testutil.Await(r, "quarantined", func() bool { // on a slow machine the answer may be too late
			_, err := other.TryAcquire(t.Context(), "k")
			wantErr(t, err, ErrUnavailable)
			return strings.Contains(err.Error(), "quarantined")
		})
	}
	r.refusedUntilOver(other, lease)
}

// Whatever happens to the messages of an acquisition, it returns without the end of its context. If it fails, no node
// keeps the key. Other tests show in virtual time that it ends at the node timeout.
func TestRealDamagedConnections(t *testing.T) {
	r := onRedis(t, 3)
	r.process() // provisions
	for name, c := range map[string]damage{
		"reply dropped": {damage: (*testutil.Proxy).DropNextReply},
		"requests black-holed": {func(p *testutil.Proxy) { p.BlackHole(testutil.ToServer, true) },
			func(p *testutil.Proxy) { p.BlackHole(testutil.ToServer, false) }, node.ErrNoAnswer},
		"replies black-holed": {func(p *testutil.Proxy) { p.BlackHole(testutil.ToClient, true) },
			func(p *testutil.Proxy) { p.BlackHole(testutil.ToClient, false) }, node.ErrNoAnswer},
		"requests late": {func(p *testutil.Proxy) { p.Delay(testutil.ToServer, time.Second) },
			func(p *testutil.Proxy) { p.Delay(testutil.ToServer, 0) }, node.ErrNoAnswer},
		"half-closed towards the server": {damage: func(p *testutil.Proxy) { p.HalfClose(testutil.ToServer) }},
		"half-closed towards the client": {damage: func(p *testutil.Proxy) { p.HalfClose(testutil.ToClient) }},
		"cut and refused": {func(p *testutil.Proxy) { p.Refuse(true); p.Cut() },
			func(p *testutil.Proxy) { p.Refuse(false) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rig{t, r.servers}
			p, proxies := r.behind()
			key := "damaged: " + name
			if granted := c.try(r, p, proxies[:2], key); granted {
				return
			}
			for i := range r.servers {
				testutil.Await(r, "nothing is left", func() bool { return r.owner(i, key) == "" })
			}
			r.release(r.acquire(p, key))
		})
	}
}

// damage is a fault of the connections to two of three nodes.
type damage struct {
	damage, repair func(*testutil.Proxy)
	cause          error // the expected cause of the failure; nil = any, or no failure
}

// try asks for a key while connections are damaged, and then repairs them. It reports whether the key was granted
// despite the damage.
func (c damage) try(r *rig, p *process, proxies []*testutil.Proxy, key string) (granted bool) {
	r.Helper()
	for _, proxy := range proxies {
		c.damage(proxy)
	}

	ctx, cancel := context.WithTimeout(r.Context(), 60*p.p.nodeTimeout)
	defer cancel()
	_, err := p.TryAcquire(ctx, key)
	if ctx.Err() != nil {
		r.Errorf("it ended with its context: %v", err)
	}

	switch {
	case c.cause != nil:
		wantErr(r.T, err, ErrUnavailable)
		wantErr(r.T, err, c.cause)
	case err != nil: // no error if a client notices the half-closed connection and uses another one
		wantErr(r.T, err, ErrUnavailable)
	}

	if c.repair != nil {
		for _, proxy := range proxies {
			c.repair(proxy)
		}
	}
	return err == nil
}

// Real nodes agree on a token in one round, although their clocks run while the requests leave: the client need not
// write the token back.
func TestRealNodesAgreeInOneRound(t *testing.T) {
	r := onRedis(t, 3)
	var writeBacks atomic.Int64 // answers to renewals
	p := r.process(unhurried, withRenewEvery(20*time.Second), WithObserver(Observer{Node: func(_ context.Context, kind OpKind, _ NodeReply) {
		if kind == OpRenew {
			writeBacks.Add(1)
		}
	}}))
	testutil.Await(r, "all nodes vote", func() bool { return p.Provision(t.Context()) == nil })
	const locks = 50
	for i := range locks {
		lease := r.acquire(p, fmt.Sprint("agree ", i))
		r.release(lease)
	}
	if n := writeBacks.Load(); n > locks/5 { // on a busy machine a node may miss a lock
		t.Errorf("%d tokens written back for %d locks", n, locks)
	}
}
