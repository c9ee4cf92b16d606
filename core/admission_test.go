package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// A fewConns lets so many requests of a client be under way as it has connections, first come, first served,
// each for a while. It stands for the client's own pool, which does not work in bubbles when it has to wait.
type fewConns struct {
	conns chan struct{}
	each  time.Duration
}

func (f fewConns) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f fewConns) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f fewConns) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if scriptOf(cmd.Args()) == nil { // a part of dialling
			return next(ctx, cmd)
		}
		f.conns <- struct{}{}
		defer func() { <-f.conns }()
		time.Sleep(f.each)
		return next(ctx, cmd)
	}
}

// Callers that ask for keys without a pause, over clients with hardly a connection, take no lease from those
// who hold one: renewals and releases do not stand in line behind them.
func TestLeasesSurviveHotLoops(t *testing.T) {
	const loops, leases = 100, 10 // so many loops at 20ms each are more than a node timeout
	for _, pool := range []int{1, 2} {
		t.Run(fmt.Sprintf("pool of %d", pool), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				var clients []redis.UniversalClient
				for _, n := range w.nodes {
					c := n.ClientWith(func(o *redis.Options) { o.PoolSize = pool })
					c.AddHook(fewConns{make(chan struct{}, pool), 20 * time.Millisecond})
					clients = append(clients, c)
				}
				l, err := New(clients, quietly, WithTTL(5*time.Second), WithClockWindow(300*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				p := &process{Locker: l}
				if err := p.Provision(t.Context()); err != nil {
					t.Fatal(err)
				}
				held := make([]*Lease, leases)
				for i := range held {
					held[i] = w.acquire(p, fmt.Sprint("held ", i))
				}
				hot, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				var granted atomic.Int64
				for i := range loops {
					all.Go(func() {
						for hot.Err() == nil {
							lease, err := p.TryAcquire(hot, fmt.Sprint("hot ", i))
							if err != nil {
								time.Sleep(time.Millisecond) // a refusal may take no time at all
								continue
							}
							granted.Add(1)
							lease.Release(hot)
						}
					})
				}
				time.Sleep(8 * time.Second) // a lease that is not renewed has ended long before
				for _, lease := range held {
					if lease.Context().Err() != nil {
						t.Errorf("%q is lost: %v", lease.Key(), context.Cause(lease.Context()))
					}
				}
				if granted.Load() == 0 {
					t.Error("no acquisition came through")
				}
				stop()
				all.Wait()
				p.Close(over())
			})
		})
	}
}

func TestAcquisitionsAtOnce(t *testing.T) {
	client := func(pool, limit int) redis.UniversalClient {
		c := redis.NewClient(&redis.Options{PoolSize: pool, MaxActiveConns: limit})
		t.Cleanup(func() { c.Close() })
		return c
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, PoolSize: 12})
	t.Cleanup(func() { cluster.Close() })
	for name, c := range map[string]struct {
		client redis.UniversalClient
		want   int
	}{
		"one connection":  {client(1, 0), 1},
		"two":             {client(2, 0), 1},
		"three":           {client(3, 0), 1},
		"twenty":          {client(20, 0), 10},
		"fewer at a time": {client(20, 4), 2},
		"a cluster":       {cluster, 6},
		"embedded":        {struct{ *redis.Client }{client(8, 0).(*redis.Client)}, 4},
		"unknown":         {struct{ redis.UniversalClient }{client(99, 0)}, assumedPool / 2},
	} {
		if got := acquisitionsAtOnce(c.client); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// crowded is a process with one slot for acquisitions, which one that takes d has.
func crowded(t *testing.T, w *world, d time.Duration) *process {
	p := w.process(WithTTL(20*time.Second), WithClockWindow(100*time.Millisecond))
	for _, n := range p.e.nodes {
		n.atOnce, n.breakers = 1, make([]*breaker, 1)
	}
	for _, k := range p.links {
		k.next(fate{replyDelay: d}, acquireScript)
	}
	go p.TryAcquire(t.Context(), "slow")
	synctest.Wait()
	return p
}

// An acquisition that waits for its turn is as good as any when it is sent, but trusted from before the wait.
func TestAcquisitionWaitsForItsTurn(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		const wait = 400 * time.Millisecond // more than the clock window
		p := crowded(t, w, wait)
		start := time.Now()
		lease := w.acquire(p, "k")
		if d := time.Since(start); d != wait {
			t.Errorf("granted after %v", d)
		}
		if trusted := lease.ValidUntil().Sub(start); trusted > p.p.validity-p.p.margin {
			t.Errorf("trusted for %v after it was asked for, more than %v", trusted, p.p.validity-p.p.margin)
		}
		w.release(lease)
	})
}

// Whoever waits longest comes first.
func TestAcquisitionsTakeTurns(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := crowded(t, w, 400*time.Millisecond)
		for _, k := range p.links {
			k.set(fate{replyDelay: time.Millisecond}, acquireScript)
		}
		var order []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				w.acquire(p, fmt.Sprint("k", i))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		all.Wait()
		if want := []int{0, 1, 2, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("granted in the order %v", order)
		}
	})
}

// An acquisition whose turn does not come is refused as overload, in half of the node timeout, and costs the
// node nothing: it was not sent, and there is nothing to give back.
func TestAcquisitionsBeyondTheBound(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := crowded(t, w, time.Hour)
		before := w.nodes[0].Calls()
		start := time.Now()
		_, err := p.TryAcquire(t.Context(), "k")
		if d := time.Since(start); d != p.p.nodeTimeout/2 {
			t.Errorf("refused after %v", d)
		}
		wantErr(t, err, ErrUnavailable)
		wantErr(t, err, errOverloaded)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = p.TryAcquire(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		if after := w.nodes[0].Calls(); !maps.Equal(before, after) {
			t.Errorf("the node was asked: %v, before %v", after, before)
		}
		if n := p.e.nodes[0]; n.inFlight != 1 { // the slow one
			t.Errorf("%d requests under way", n.inFlight)
		}
		for _, k := range p.links {
			k.clear()
		}
	})
}

// A turn that comes at the moment when the round ends is given back.
func TestTurnComesTooLate(t *testing.T) {
	w := &rig{T: t}
	n := aloneNode(t)
	b := n.breaker(0)
	for b.tryEnter() {
	}
	r := round{l: &Locker{e: &engine{clock: newStopwatch()}}, done: make(chan struct{})}
	r.l.p.nodeTimeout = time.Hour
	r.votes = make([]vote, 1)
	asked := make(chan bool)
	go func() {
		asked <- r.await(b, 0)
	}()
	testutil.Await(w, "waiting", func() bool { return r.isQueued(0) })
	r.mu.Lock()
	b.exit()
	testutil.Await(w, "the turn comes", func() bool { return len(b.slots) == cap(b.slots) })
	r.finish()
	r.mu.Unlock()
	if testutil.Receive(t, asked) {
		t.Error("a request is sent when its round is over")
	}
	if got := r.votes[0]; got.verdict != CircuitOpen || !errors.Is(got.err, errOverloaded) {
		t.Errorf("the node has the vote %v, %v", got.verdict, got.err)
	}
	if !b.tryEnter() {
		t.Error("the turn is lost")
	}
}

// An attempt may be over before its last request has left. It is not sent then: it might look younger to the node
// than the end of the attempt.
func TestEndedAttemptSendsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		asked := p.counting(acquireScript)
		lease := p.newLease(t.Context(), "k", p.e.keys.resource("k"))
		lease.over()
		r := round{l: p.Locker, lease: lease, bucket: lease.bucket, script: acquireScript, stamped: true,
			args: lease.acquiring(false, ""), decided: func(*round) bool { return false }}
		r.send(t.Context(), allNodes(len(w.nodes)))
		r.leave()
		synctest.Wait()
		if n := asked.Load(); n > 0 {
			t.Errorf("%d requests sent", n)
		}
		for _, n := range p.e.nodes {
			if b := n.breaker(0); n.inFlight != 0 || len(b.slots) != 0 {
				t.Errorf("%v: %d requests booked, %d slots taken", n, n.inFlight, len(b.slots))
			}
		}
	})
}

func (r *round) isQueued(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queued.has(i)
}

// Connections that are all in use are no failure of the node.
func TestPoolTimeoutsDoNotOpenTheCircuit(t *testing.T) {
	n := aloneNode(t)
	for range 9 {
		b, err := n.admit(0, time.Second, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		n.leave(b, 0, fmt.Errorf("acquire: %w", redis.ErrPoolTimeout))
	}
}
