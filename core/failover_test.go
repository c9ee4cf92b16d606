package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// failover keeps these tests short: of 12s that a lease has, a promotion after 2s leaves more than enough for the
// replica lag and a renewal.
var failover = []Option{TTL(12 * time.Second), WithClockWindow(300 * time.Millisecond), withRenewEvery(800 * time.Millisecond),
	withNodeTimeout(500 * time.Millisecond), WithRestartGuard(true), WithReplicaLag(failoverLag)}

// failoverLag is a second more than the servers' min-replicas-max-lag.
const failoverLag = 3 * time.Second

// failoverNeeds is for how long a promoted server must serve, before a lease ends, for that lease to be renewed
// there: it notes when its memory began, confirms nothing for the lag, and then only what ends later than clocks
// may step (2.2 windows); and the holder tries again every 0.6s.
const failoverNeeds = failoverLag + 2500*time.Millisecond

// A holding is a lease that somebody else asks for all the time.
type holding struct {
	*Lease
	server *testutil.Server // that had it at first
}

// hold acquires n keys for holder, and has contender ask for them until the test ends: it must not be granted
// one while the lease on it lasts.
func (r *rig) hold(holder, contender *process, n int, server func(key string) *testutil.Server) []holding {
	r.Helper()
	all := make([]holding, n)
	for i := range all {
		lease := r.acquire(holder, fmt.Sprint("k", i))
		all[i] = holding{lease, server(lease.attempt.lock.Resource())}
	}
	ctx, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	r.Cleanup(func() {
		stop()
		loops.Wait()
	})
	for _, h := range all {
		loops.Go(func() { r.contend(ctx, h, contender) })
	}
	return all
}

// contend has somebody else ask for the key of a lease again and again until ctx ends. It must not get the key while
// the lease is valid, nor a token that is not greater.
func (r *rig) contend(ctx context.Context, h holding, contender *process) {
	for ctx.Err() == nil {
		if second, err := contender.TryAcquire(ctx, h.Key()); err == nil {
			if h.Context().Err() == nil {
				r.Errorf("%s: a second holder, while the first is valid for another %v", h.Key(), time.Until(h.ValidUntil()))
			}
			if second.FencingToken() <= h.FencingToken() {
				r.Errorf("%s: token %d after %d", h.Key(), second.FencingToken(), h.FencingToken())
			}
			second.Release(context.Background())
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// renewed waits until all leases have been renewed from now on, and returns those that are lost.
func (r *rig) renewed(all []holding) (lost []holding) {
	r.Helper()
	until := make([]time.Time, len(all))
	for i, h := range all {
		until[i] = h.ValidUntil().Add(100 * time.Millisecond) // it is as exact as the clock
	}
	for i, h := range all {
		testutil.Await(r, "renewed or lost", func() bool { return h.Context().Err() != nil || h.ValidUntil().After(until[i]) })
		if h.Context().Err() != nil {
			lost = append(lost, h)
		}
	}
	return lost
}

// survive kills a server, and waits until another has been promoted. Leases that others have go on. Leases of
// its own go on, too, if the promoted server left them the time.
func (r *rig) survive(all []holding, victim *testutil.Server, server func(key string) *testutil.Server) {
	r.Helper()
	r.renewed(all)
	victim.Kill()
	killed := time.Now()
	var key string
	for _, h := range all {
		if h.server == victim {
			key = h.attempt.lock.Resource()
		}
	}
	testutil.Await(r, "promoted", func() bool { return server(key) != victim })
	r.Logf("promoted after %v", time.Since(killed))
	w := r.witness(server(key), key)
	lost := r.renewed(all)
	w.stop()
	for _, h := range lost {
		lostAt := h.ValidUntil()
		switch {
		case h.server != victim && server(h.attempt.lock.Resource()) != h.server: // a machine that is too slow: others failed over as well
		case h.server == victim && !w.served(lostAt.Add(-failoverNeeds), lostAt):
		default:
			r.Errorf("%s is lost (it was with %s, the server killed is %s): %v", h.Key(), h.server.Addr(), victim.Addr(), context.Cause(h.Context()))
			continue
		}
		r.Logf("%s is lost, for which the servers are to blame", h.Key())
	}
}

// A witness writes to a server all the time, to tell a server that does not serve from a client that does not
// follow it.
type witness struct {
	end    context.CancelFunc
	ended  chan struct{}
	writes []time.Time // that succeeded
}

func (r *rig) witness(server *testutil.Server, key string) *witness {
	ctx, end := context.WithCancel(context.Background())
	w := &witness{end: end, ended: make(chan struct{})}
	r.Cleanup(w.stop)
	client := server.Client()
	go func() {
		defer close(w.ended)
		ticks := time.NewTicker(20 * time.Millisecond)
		defer ticks.Stop()
		for ctx.Err() == nil {
			if client.Set(ctx, key+" witness", 1, 0).Err() == nil {
				w.writes = append(w.writes, time.Now())
			}
			select {
			case <-ticks.C:
			case <-ctx.Done():
			}
		}
	}()
	return w
}

func (w *witness) stop() {
	w.end()
	<-w.ended
}

// served reports whether the server took writes all the time. To be asked when the witness has stopped.
func (w *witness) served(from, to time.Time) bool {
	const gap = 250 * time.Millisecond
	last := from
	for _, at := range w.writes {
		if at.After(last) && at.Sub(last) < gap {
			last = at
		}
	}
	return to.Sub(last) < gap
}

// A master of a Cluster dies under leases.
func TestRealClusterFailover(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 3, time.Second)
	r := &rig{T: t}
	holder := r.with([]redis.UniversalClient{c.Client()}, failover...)
	contender := r.with([]redis.UniversalClient{c.Client()}, failover...)
	witness := c.Servers[0]
	server := func(key string) *testutil.Server { return c.Master(witness, key) }
	for _, client := range []redis.UniversalClient{witness.Client(), struct{ redis.UniversalClient }{c.Client()}} {
		_, err := New([]redis.UniversalClient{client}, quietly, unhurried)
		wantInError(t, err, "belongs to a Redis Cluster", "redis.ClusterClient")
	}
	all := r.hold(holder, contender, 36, server)
	victim := c.Servers[1]
	r.survive(all, victim, server)
	r.afterwards(all, holder)
}

// afterwards releases all leases, and sees that their keys can be acquired: those of the server that was
// promoted when the quarantine is over.
func (r *rig) afterwards(all []holding, p *process) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	var each sync.WaitGroup
	for _, h := range all {
		each.Go(func() {
			// On a slow machine the promoted server may be out of reach for a while longer.
			if err := h.Release(ctx); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrUnavailable) {
				r.Errorf("%s: %v", h.Key(), err)
			}
			lease, err := p.Acquire(ctx, h.Key())
			for ClassOf(err) == ClassUnavailable && ctx.Err() == nil { // nor may its replicas keep up with it
				lease, err = p.Acquire(ctx, h.Key())
			}
			if err != nil {
				r.Errorf("%s: %v", h.Key(), err)
				return
			}
			lease.Release(ctx)
		})
	}
	each.Wait()
}

// A primary that a sentinel watches dies under leases. It has two replicas, because the one that is promoted needs one as
// well: by min-replicas-to-write a primary without one serves nobody.
func TestRealSentinelFailover(t *testing.T) {
	t.Parallel()
	c := testutil.NewSentinel(t, 2, time.Second, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
	r := &rig{T: t}
	holder := r.with([]redis.UniversalClient{c.Client()}, failover...)
	contender := r.with([]redis.UniversalClient{c.Client()}, failover...)
	server := func(string) *testutil.Server { return c.Primary() }
	_, err := Open([]string{"redis://" + c.Addr()}, quietly, unhurried)
	wantInError(t, err, "Sentinel", "redis.NewFailoverClient")
	all := r.hold(holder, contender, 12, server)
	r.survive(all, c.Primary(), server)
	r.afterwards(all, holder)
}
