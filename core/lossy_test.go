package core

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/internal/race"
)

var lossySeeds = flag.Uint64("lossy.seeds", 1, "how many lossy networks TestLossyNetwork measures for each number of nodes")

// A lossyNet takes a while for each way. With some probability it closes a connection instead of forwarding a chunk.
type lossyNet struct {
	way  time.Duration
	loss float64

	mu     sync.Mutex
	random *rand.Rand
}

func (l *lossyNet) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.Float64() < l.loss
}

// A lossyConn is the client's end of a connection over a lossyNet. Replies are delayed by the node.
type lossyConn struct {
	net.Conn
	over  *lossyNet
	reset atomic.Pointer[time.Time] // when the client learns that the connection is closed; nil while it is open
}

// lose closes the connection with some probability, and reports whether it is closed. The client learns of it after a
// while.
func (c *lossyConn) lose(after time.Duration) bool {
	if c.over.loses() {
		at := time.Now().Add(after)
		c.reset.CompareAndSwap(nil, &at)
		c.Conn.Close()
	}
	return c.reset.Load() != nil
}

func (c *lossyConn) Write(p []byte) (int, error) {
	if c.reset.Load() != nil || c.lose(2*c.over.way) {
		return len(p), nil // as a socket does until it learns of the end
	}
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	if c.reset.Load() == nil {
		n, err := c.Conn.Read(p)
		if errors.Is(err, os.ErrDeadlineExceeded) || err == nil && !c.lose(0) {
			return n, err
		}
	}
	if at := c.reset.Load(); at != nil {
		time.Sleep(time.Until(*at))
	}
	return 0, &net.OpError{Op: "read", Net: "lossy", Err: syscall.ECONNRESET}
}

func (c *lossyConn) SetDeadline(t time.Time) error {
	c.Conn.SetDeadline(t) // fails if the other end is closed
	return nil
}

func (c *lossyConn) SetReadDeadline(t time.Time) error {
	c.Conn.SetReadDeadline(t)
	return nil
}

func (c *lossyConn) SetWriteDeadline(t time.Time) error {
	c.Conn.SetWriteDeadline(t)
	return nil
}

// lostOver holds fifty leases over a lossy network for half a minute, beside busy callers, and returns how many are
// lost.
func (w *world) lostOver(n *lossyNet, loss float64) (lost int) {
	var clients []redis.UniversalClient
	for _, node := range w.nodes {
		clients = append(clients, node.ClientWith(func(o *redis.Options) {
			o.PoolSize, o.MaxRetries = 100, -1
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				time.Sleep(2 * n.way)
				conn, err := node.Dial(ctx, network, addr)
				return &lossyConn{Conn: conn, over: n}, err
			}
		}))
	}

	p := &process{Locker: must(New(clients, quietly, TTL(2*time.Second), WithClockWindow(300*time.Millisecond)))}
	succeeds(w.t, p.Provision(w.t.Context()))
	held, wait := p.crowd(w.t.Context(), 50)
	wait()

	for _, node := range w.nodes {
		node.Slow(n.way)
		node.SlowReplies(n.way)
	}
	n.mu.Lock()
	n.loss = loss
	n.mu.Unlock()

	ctx, stop := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	var granted atomic.Int64
	for i := range 6 {
		all.Go(func() { hotLoop(ctx, p, fmt.Sprint("busy ", i), &granted) })
	}

	time.Sleep(30 * time.Second)
	for _, lease := range held {
		if lease.Context().Err() != nil {
			lost++
		}
	}
	stop()
	all.Wait()
	p.Close(over())
	return lost
}

// A network with round trips of 40 ms breaks the connection at one chunk in twenty. On three and five nodes at most one
// lease is lost. On a single node it may be several.
func TestLossyNetwork(t *testing.T) {
	race.SkipSweep(t)
	for _, n := range []int{1, 3, 5} {
		for seed := range *lossySeeds {
			bubbleNamed(t, fmt.Sprint(n, " nodes/", seed), n, func(t *testing.T, w *world) {
				lost := w.lostOver(&lossyNet{way: 20 * time.Millisecond, random: rand.New(rand.NewPCG(seed, 0))}, 0.05)
				if t.Logf("%d nodes: %d of 50 leases are lost", n, lost); lost > 1 && n > 1 {
					t.Fail()
				}
			})
		}
	}
}

// A connBreaker resets connections with requests under way, after a while.
type connBreaker struct {
	coretest.CommandsOnly
	mu     sync.Mutex
	breaks func(batch []coretest.Sent) bool
	arrive bool // the request arrives, and its reply is lost
	sent   int  // number of batches
}

func (b *connBreaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		batch := coretest.RequestsOf(cmd.Args())
		b.mu.Lock()
		b.sent++
		broken := b.breaks != nil && len(batch) > 0 && b.breaks(batch)
		b.mu.Unlock()
		if !broken {
			return next(ctx, cmd)
		}
		if b.arrive {
			next(ctx, cmd)
		}
		time.Sleep(10 * time.Millisecond)
		err := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
		cmd.SetErr(err)
		return err
	}
}

// firstOf returns a rule that breaks the connection of every batch with a resource that has not been sent before.
func firstOf() func([]coretest.Sent) bool {
	seen := map[any]bool{}
	return func(batch []coretest.Sent) (first bool) {
		for _, q := range batch {
			id := q.Resource
			first = first || !seen[id]
			seen[id] = true
		}
		return first
	}
}

// A renewal whose connection breaks is sent again at once, in a smaller batch. It is confirmed in the round in which it
// was lost, and trusted from the beginning of that round. The node may still get the lost request.
func TestRenewalsOverConnectionsThatBreak(t *testing.T) {
	always := func([]coretest.Sent) bool { return true }
	bubbles(t, 3, map[string]struct {
		breaks    func() func([]coretest.Sent) bool
		arrive    bool
		confirmed bool
	}{
		"under large batches": {func() func([]coretest.Sent) bool {
			return func(batch []coretest.Sent) bool { return len(batch) > 13 }
		}, false, true},
		"before requests": {firstOf, false, true},
		"before answers":  {firstOf, true, true},
		"always":          {func() func([]coretest.Sent) bool { return always }, false, false},
	}, func(t *testing.T, w *world, c struct {
		breaks    func() func([]coretest.Sent) bool
		arrive    bool
		confirmed bool
	}) {
		p := w.process()
		leases, wait := p.crowd(t.Context(), 50)
		wait()
		synctest.Wait()
		p.stopTimers()
		time.Sleep(time.Second)

		var nets []*connBreaker
		var began clock.Instant
		w.together(p, func() {
			for _, n := range p.e.Nodes {
				nets = append(nets, &connBreaker{breaks: c.breaks(), arrive: c.arrive})
				n.Client.(*redis.Client).AddHook(nets[len(nets)-1])
			}
			began = p.e.Clock.Now()
			for _, lease := range leases {
				lease.renew()
			}
		})

		time.Sleep(p.p.nodeTimeout / 2)
		for _, lease := range leases {
			until, want := lease.liveUntil.Load(), began.Add(p.p.validity-p.p.margin)
			if until > want || (until == want) != c.confirmed {
				t.Errorf("%q is trusted until %v after the renewal began, which would be confirmed until %v", lease.attempt.lock.Key, until.Since(began), want.Since(began))
			}
			lease.attempt.mu.Lock()
			if lease == leases[25] && lease.attempt.nodes[0].unanswered == 0 {
				t.Error("nothing may arrive any more, though a request was lost")
			}
			lease.attempt.mu.Unlock()
		}

		for i, n := range nets {
			if n.sent > 20 {
				t.Errorf("node %d was sent %d batches", i, n.sent)
			}
		}
		if c.confirmed {
			w.wantAtEase(p) // requests that were lost together, or once more, are one failure
		}
	})
}

// A release or completion whose connection breaks is sent again, too, and succeeds. Here the node has got it the first
// time.
func TestEndsOverConnectionsThatBreak(t *testing.T) {
	bubbles(t, 1, map[string]func(*Lease) error{
		"release":  func(lease *Lease) error { return lease.Release(context.Background()) },
		"complete": func(lease *Lease) error { return lease.Complete(context.Background(), nil) },
	}, func(t *testing.T, w *world, end func(*Lease) error) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.e.Nodes[0].Client.(*redis.Client).AddHook(&connBreaker{breaks: firstOf(), arrive: true})
		start := time.Now()
		if err := end(lease); err != nil || time.Since(start) > p.p.nodeTimeout/2 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
