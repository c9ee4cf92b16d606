package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

// A fewConns lets so many requests of a client be under way as it has connections, first come, first served,
// each for a while. It stands for the client's own pool, which does not work in bubbles when it has to wait.
type fewConns struct {
	coretest.CommandsOnly
	conns chan struct{}
	each  time.Duration
}

func (f fewConns) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if coretest.RequestsOf(cmd.Args()) == nil { // a part of dialling
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
	race.SkipSweep(t)
	const loops, leases = 100, 10 // so many loops at 20ms each are more than a node timeout
	bubbles(t, 3, map[string]int{"pool of 1": 1, "pool of 2": 2}, func(t *testing.T, w *world, pool int) {
		p := w.withConns(pool, 20*time.Millisecond, TTL(5*time.Second), WithClockWindow(300*time.Millisecond))
		held := make([]*Lease, leases)
		for i := range held {
			held[i] = w.acquire(p, fmt.Sprint("held ", i))
		}
		hot, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var granted atomic.Int64
		for i := range loops {
			all.Go(func() { hotLoop(hot, p, fmt.Sprint("hot ", i), &granted) })
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
}

// withConns makes a process whose clients have so many connections each, on which a request takes that long.
func (w *world) withConns(n int, each time.Duration, opts ...Option) *process {
	w.t.Helper()
	var clients []redis.UniversalClient
	for _, node := range w.nodes {
		c := node.ClientWith(func(o *redis.Options) { o.PoolSize = n })
		c.AddHook(fewConns{conns: make(chan struct{}, n), each: each})
		clients = append(clients, c)
	}
	p := &process{Locker: must(New(clients, append([]Option{quietly}, opts...)...))}
	succeeds(w.t, p.Provision(w.t.Context()))
	return p
}

// hotLoop asks for a key until ctx ends.
func hotLoop(ctx context.Context, p *process, key string, granted *atomic.Int64) {
	for ctx.Err() == nil {
		lease, err := p.TryAcquire(ctx, key)
		if err != nil {
			time.Sleep(10 * time.Millisecond) // a refusal may take no time at all
			continue
		}
		granted.Add(1)
		lease.Release(ctx)
	}
}

// crowded is a process with one slot for acquisitions, which one that takes d has.
func crowded(t *testing.T, w *world, d time.Duration) *process {
	w.connections = 2
	p := w.process(TTL(20*time.Second), WithClockWindow(100*time.Millisecond))
	for _, k := range p.links {
		k.Next(coretest.Fate{ReplyDelay: d}, wire.OpAcquire)
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

// Whoever waits longest is sent first.
func TestAcquisitionsTakeTurns(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := crowded(t, w, 400*time.Millisecond)
		var order, want []any
		p.links[0].Decide(func(s wire.Op, q coretest.Sent) coretest.Fate {
			if s == wire.OpAcquire {
				order = append(order, q.Resource)
			}
			return coretest.Fate{}
		})
		var all sync.WaitGroup
		for i := range 5 {
			key := fmt.Sprint("k", i)
			want = append(want, p.e.Keys.Resource(key))
			all.Go(func() { w.acquire(p, key) })
			synctest.Wait()
		}
		all.Wait()
		if !slices.Equal(order, want) {
			t.Errorf("sent in the order %v", order)
		}
	})
}

// An acquisition whose turn does not come is refused as overload when the node timeout is over, and costs the
// node nothing: it was not sent, and there is nothing to give back.
func TestAcquisitionsBeyondTheBound(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := crowded(t, w, time.Hour)
		start := time.Now()
		_, err := p.TryAcquire(t.Context(), "k")
		if d := time.Since(start); d != p.p.nodeTimeout {
			t.Errorf("refused after %v", d)
		}
		wantErr(t, err, ErrUnavailable)
		wantErr(t, err, goredis.ErrOverloaded)
		synctest.Wait() // the end of the slow attempt has left, and has taken nobody along
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = p.TryAcquire(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		if n, err := w.nodes[0].Exec("EXISTS", p.e.Keys.Resource("k")); n != 0 || err != nil {
			t.Errorf("the node was asked: %v, %v", n, err)
		}
		for _, k := range p.links {
			k.Mend()
		}
	})
}

// One whose turn leaves less than half of the node timeout for the answer is not sent.
func TestAcquisitionThatWaitedTooLong(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := crowded(t, w, 600*time.Millisecond)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, goredis.ErrOverloaded)
		if n := must(w.nodes[0].Exec("EXISTS", p.e.Keys.Resource("k"))); n != 0 {
			t.Error("the node was asked")
		}
	})
}

// An attempt may be over before its last request has left. It is not sent then: it might look younger to the node
// than the end of the attempt.
func TestEndedAttemptSendsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		asked := p.counting(wire.OpAcquire)
		lease := p.newLease(t.Context(), "k")
		lease.attempt.markOver()
		r := lease.attempt.newAcquireRound(false)
		r.Decided = func(*node.Round) bool { return false }
		r.Send(t.Context(), quorum.All(len(w.nodes)))
		r.Abandon()
		synctest.Wait()
		if n := asked.Load(); n > 0 {
			t.Errorf("%d requests sent", n)
		}
		w.wantAtEase(p)
	})
}
