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

// A fewConns lets a client send only as many requests at once as it has connections, first come, first served. Each
// request takes a while. It replaces the client's own pool, because that does not work in a bubble if a request has to
// wait.
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

// Callers that ask for keys without a pause, over clients with very few connections, cost no holder its lease. Renewals
// and releases do not wait behind acquisitions.
func TestLeasesSurviveHotLoops(t *testing.T) {
	race.SkipSweep(t)
	const loops, leases = 100, 10 // 100 loops at 20ms each take longer than a node timeout
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

// withConns makes a process whose clients have n connections each. Each request occupies its connection for a while.
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

// crowded returns a process with one slot for acquisitions. An acquisition that takes d occupies the slot.
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

// An acquisition that waited for its slot is valid when it is sent, but is trusted from before the wait.
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

// The acquisition that has waited longest is sent first.
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

// An acquisition that gets no slot within the node timeout fails as overload. It was never sent, so there is nothing to
// release.
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
		synctest.Wait() // the end of the slow attempt was sent, and no acquisition with it
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

// An acquisition is not sent if it gets its slot when less than half of the node timeout is left for the reply.
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

// An attempt may be over before its last request was sent. The request is then not sent, because the node might take it
// for younger than the end of the attempt.
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
