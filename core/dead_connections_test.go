package core

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

// deadConnections are connections of a pool that lead nowhere, as after a firewall on the way has forgotten them. A
// request over one of them waits for the client's read timeout, and then the client drops the connection. The server is
// well.
type deadConnections struct {
	coretest.CommandsOnly
	mu   sync.Mutex
	left int
}

const readTimeout = 3 * time.Second // go-redis' default

func (d *deadConnections) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		d.mu.Lock()
		dead := d.left > 0
		if dead {
			d.left--
		}
		d.mu.Unlock()
		if !dead {
			return next(ctx, cmd)
		}
		time.Sleep(readTimeout)
		cmd.SetErr(coretest.ErrLost)
		return coretest.ErrLost
	}
}

// forget makes n connections in the pool of each node lead nowhere.
func (p *process) forget(n int) {
	for _, node := range p.e.Nodes {
		node.Client.(*redis.Client).AddHook(&deadConnections{left: n})
	}
}

// linger waits until no request is under way.
func linger() {
	time.Sleep(20 * time.Second)
	synctest.Wait()
}

// A connection that leads nowhere does not delay requests over other connections.
func TestDeadConnectionHoldsUpNobody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.set(coretest.Fate{Delay: node.MinPace / 4, ReplyDelay: node.MinPace / 4}) // a server next door
		w.release(w.acquire(p, "warm"))
		time.Sleep(time.Second)
		p.forget(1)
		go p.TryAcquire(t.Context(), "lost")
		time.Sleep(400 * time.Millisecond)

		go p.TryAcquire(t.Context(), "first")
		time.Sleep(node.MinPace / 8)
		start := time.Now()
		_, err := p.TryAcquire(t.Context(), "second")
		if took := time.Since(start); err != nil || took > turnTime {
			t.Errorf("after %v: %v", took, err)
		}

		linger()
	})
}

// Connections that lead nowhere cost no lease, because the client makes new ones.
func TestPoolOfDeadConnectionsCostsNoLease(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.set(coretest.Fate{Delay: time.Millisecond, ReplyDelay: time.Millisecond})
		held := w.holdMany(p, 300, 10*time.Millisecond)
		time.Sleep(10 * time.Second)
		p.forget(12)
		time.Sleep(8 * time.Second)
		w.wantHeld(held)
		p.mend()
		linger()
	})
}

// exhaust makes p send requests until all connections that lead nowhere are in use.
func (w *world) exhaust(p *process, dead int) {
	w.t.Helper()
	ended := make([]*Lease, 30)
	for i := range ended {
		ended[i] = w.acquire(p, fmt.Sprint("ended ", i))
	}
	p.forget(dead)
	for _, lease := range ended {
		go lease.Release(w.t.Context())
		time.Sleep(turnTime)
	}
}

// A release does not wait for connections that lead nowhere.
func TestReleaseBesideDeadConnections(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		p.set(coretest.Fate{Delay: time.Millisecond, ReplyDelay: time.Millisecond})
		lease := w.acquire(p, "k")
		w.exhaust(p, 6)
		start := time.Now()
		err := lease.Release(t.Context())
		if took := time.Since(start); err != nil || took > p.p.nodeTimeout/8 {
			t.Errorf("after %v: %v", took, err)
		}
		w.wantFree(other, "k")
		linger()
	})
}

// Close sends every release before it closes the clients.
func TestCloseBesideDeadConnections(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(TTL(3*time.Second), WithMaxTTL(10*time.Second)), w.process()
		p.set(coretest.Fate{Delay: time.Millisecond, ReplyDelay: time.Millisecond})
		w.holdMany(p, 10, 0)
		w.exhaust(p, 6)
		p.e.closeOwnClients = p.e.Nodes[0].Client.Close
		p.Close(over())
		for i := range 10 {
			w.wantFree(other, fmt.Sprint("held ", i))
		}
	})
}

// Leases with a short TTL survive connections that lead nowhere.
func TestShortLeaseBesideDeadConnections(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(TTL(time.Second), WithMaxTTL(10*time.Second), WithClockWindow(50*time.Millisecond))
		p.set(coretest.Fate{Delay: time.Millisecond, ReplyDelay: time.Millisecond})
		held := w.holdMany(p, 100, 3*time.Millisecond)
		time.Sleep(2 * time.Second)
		p.forget(8)
		time.Sleep(3 * time.Second)
		w.wantHeld(held)
		p.mend()
		linger()
	})
}

// A client without a read timeout does not lose a connection of its pool to a request that gets no reply.
func TestNoConnectionIsTakenForGood(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var swallows atomic.Bool
		client := w.nodes[0].ClientWith(func(o *redis.Options) {
			o.ReadTimeout, o.PoolSize, o.MaxRetries = -1, 1, -1
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return &swallowing{conn, &swallows}, err
			}
		})
		defer client.Close()

		l, err := New([]redis.UniversalClient{client}, quietly)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(over())

		swallows.Store(true)
		_, err = l.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)

		swallows.Store(false)
		time.Sleep(10 * time.Second)
		w.release(w.acquire(&process{Locker: l}, "k"))
	})
}

// A swallowing connection drops what is written to it while on is set.
type swallowing struct {
	net.Conn
	on *atomic.Bool
}

func (c *swallowing) Write(p []byte) (int, error) {
	if c.on.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// The tests below are about a node that has not answered yet when an attempt is refused.

// A node that refused the key, too, gets no release.
func TestRefusalThatComesLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.holds(w.process(unrenewed), "k")
		p := w.process()
		released := p.counting(wire.OpRelease)
		p.links[2].Set(coretest.Fate{ReplyDelay: 20 * time.Millisecond}, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		time.Sleep(time.Minute)
		if n := released.Load(); n > 0 {
			t.Errorf("%d releases of what was granted nowhere", n)
		}
	})
}

// A node that granted the key gets the release at once.
func TestGrantThatComesLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder := w.process(unrenewed)
		holder.links[2].Set(coretest.Fate{Refuse: true}, wire.OpAcquire)
		w.holds(holder, "k")
		p := w.process()
		p.set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire) // all nodes have been asked by then
		p.links[2].Set(coretest.Fate{ReplyDelay: 20 * time.Millisecond}, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		synctest.Wait()
		if w.resource(p, 2, "k").Expiry == 0 {
			t.Fatal("the third node did not grant it")
		}
		w.pass(20 * time.Millisecond)
		if r := w.resource(p, 2, "k"); r.Expiry != 0 {
			t.Errorf("the third node keeps it: %+v", r)
		}
	})
}

// A node that does not answer gets the release after the node timeout, because the request may still arrive.
func TestGrantWithoutAnAnswer(t *testing.T) {
	bubbles(t, 3, map[string]coretest.Fate{
		"arrived":   {LoseReply: true},
		"under way": {Delay: time.Second},
	}, func(t *testing.T, w *world, f coretest.Fate) {
		holder := w.process(unrenewed)
		holder.links[2].Set(coretest.Fate{Refuse: true}, wire.OpAcquire)
		w.holds(holder, "k")
		p := w.process()
		p.set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire)
		p.links[2].Set(f, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		time.Sleep(3 * time.Second)
		if r := w.resource(p, 2, "k"); r.Expiry != 0 {
			t.Errorf("the third node keeps it: %+v", r)
		}
	})
}
