package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// failover keeps these tests short. A promotion after 2s leaves enough of the TTL of 12s for the replica lag and a
// renewal.
var failover = []Option{TTL(12 * time.Second), WithClockWindow(300 * time.Millisecond), withRenewEvery(800 * time.Millisecond),
	withNodeTimeout(500 * time.Millisecond), WithRestartGuard(true), WithReplicaLag(failoverLag)}

// failoverLag is the servers' min-replicas-max-lag and a second more.
const failoverLag = 3 * time.Second

// failoverNeeds is how long a promoted server must serve before a lease ends, so that the lease can be renewed there.
// The server records when its memory began. It confirms no renewal during the lag, and afterwards only leases that end
// later than clocks may step (2.2 windows). The holder tries again every 0.6s.
const failoverNeeds = failoverLag + 2500*time.Millisecond

// If a server serves for failoverRenews in the last failoverTrust of a lease, the lease is renewed there several times, and
// does not end yet.
const (
	failoverTrust  = 10 * time.Second // a renewal extends a lease by more than this
	failoverRenews = 3 * time.Second
)

// A holding is a lease whose key another process keeps asking for.
type holding struct {
	*Lease
	server *testutil.Server // the server that held the key at first
}

// hold acquires n keys for holder, and makes contender ask for them until the test ends. The contender must not be
// granted a key while the lease on it lasts.
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

// contend makes contender ask for the key of h again and again until ctx ends. The contender must not get the key while
// the lease is valid, and its tokens must be greater.
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

// renewed waits until every lease has been renewed or lost, and returns the lost ones.
func (r *rig) renewed(all []holding) (lost []holding) {
	r.Helper()
	until := make([]time.Time, len(all))
	for i, h := range all {
		until[i] = h.ValidUntil().Add(100 * time.Millisecond) // ValidUntil is only as exact as the clock
	}
	for i, h := range all {
		testutil.Await(r, "renewed or lost", func() bool { return h.Context().Err() != nil || h.ValidUntil().After(until[i]) })
		if h.Context().Err() != nil {
			lost = append(lost, h)
		}
	}
	return lost
}

// survive kills a server and waits until another one has been promoted. Leases must survive if a server serves them for
// long enough: the one that has them at first, or the promoted one. On a slow machine, other servers fail over as well,
// or stand still.
func (r *rig) survive(all []holding, victim *testutil.Server, server func(key string) *testutil.Server) {
	r.Helper()
	witnesses := map[*testutil.Server]*witness{} // by the servers that have the keys at first
	var key string                               // of the victim
	for _, h := range all {
		if h.server == victim {
			key = h.attempt.lock.Resource()
		}
		if witnesses[h.server] == nil {
			witnesses[h.server] = r.witness(h.server, h.attempt.lock.Resource())
		}
	}
	r.renewed(all)

	victim.Kill()
	killed := time.Now()
	testutil.Await(r, "promoted", func() bool { return server(key) != victim })
	r.Logf("promoted after %v", time.Since(killed))
	promoted := r.witness(server(key), key)
	lost := r.renewed(all) // also those that were lost before

	promoted.stop()
	for _, w := range witnesses {
		w.stop()
	}
	for _, h := range lost {
		lostAt := h.ValidUntil()
		renewable := witnesses[h.server].served(lostAt.Add(-failoverTrust), lostAt) >= failoverRenews
		followed := h.server == victim && promoted.served(lostAt.Add(-failoverNeeds), lostAt) == failoverNeeds
		if renewable || followed {
			r.Errorf("%s is lost (it was with %s, the server killed is %s): %v", h.Key(), h.server.Addr(), victim.Addr(), context.Cause(h.Context()))
		} else {
			r.Logf("%s is lost, for which its servers are to blame", h.Key())
		}
	}
}

// A witness writes to a server all the time. It distinguishes a server that does not serve from a client that does not
// follow the failover.
type witness struct {
	end    context.CancelFunc
	ended  chan struct{}
	writes []time.Time // when a write succeeded
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

// served returns the longest time between from and to in which the server accepted writes without a pause. The witness
// must have stopped.
func (w *witness) served(from, to time.Time) (longest time.Duration) {
	const pause = 250 * time.Millisecond
	since, last := from, from
	for _, at := range append(slices.Clone(w.writes), to) {
		if at.Before(from) || at.After(to) {
			continue
		}
		if at.Sub(last) >= pause {
			since = at
		}
		last = at
		longest = max(longest, last.Sub(since))
	}
	return longest
}

// Leases survive the failure of a master of a Redis Cluster.
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

// afterwards releases all leases, and checks that their keys can be acquired again. The promoted server grants its keys
// only after its quarantine.
func (r *rig) afterwards(all []holding, p *process) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	var each sync.WaitGroup
	for _, h := range all {
		each.Go(func() {
			// On a slow machine, the promoted server may be unreachable for a while longer.
			if err := h.Release(ctx); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrUnavailable) {
				r.Errorf("%s: %v", h.Key(), err)
			}

			lease, err := p.Acquire(ctx, h.Key())
			for ClassOf(err) == ClassUnavailable && ctx.Err() == nil { // its replicas may not keep up with it either
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

// Leases survive the failure of a primary that a Sentinel watches. The primary has two replicas, because the promoted
// one needs a replica, too: with min-replicas-to-write, a primary without replicas accepts no writes.
func TestRealSentinelFailover(t *testing.T) {
	t.Parallel()
	c := testutil.NewSentinel(t, 2, time.Second, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
	r := &rig{T: t}
	holder := r.with([]redis.UniversalClient{c.Client()}, failover...)
	contender := r.with([]redis.UniversalClient{c.Client()}, failover...)
	server := func(string) *testutil.Server { return c.Primary() }

	wantInError(t, refused(t, "redis://"+c.Addr()), "Sentinel", "redis.NewFailoverClient")

	all := r.hold(holder, contender, 12, server)
	r.survive(all, c.Primary(), server)
	r.afterwards(all, holder)
}
