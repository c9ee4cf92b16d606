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

// failover keeps these tests short: leases of 8s that are renewed after 800ms, so that a failover has 5s.
const failoverLag = time.Second

var failover = []Option{WithTTL(8 * time.Second), WithClockWindow(300 * time.Millisecond), WithRenewEvery(800 * time.Millisecond),
	WithNodeTimeout(500 * time.Millisecond), WithRestartGuard(true), WithReplicaLag(failoverLag)}

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
		all[i] = holding{lease, server(lease.line)}
	}
	ctx, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	r.Cleanup(func() {
		stop()
		loops.Wait()
	})
	for _, h := range all {
		loops.Go(func() {
			for ctx.Err() == nil {
				second, err := contender.TryAcquire(ctx, h.Key())
				if err == nil {
					if h.Context().Err() == nil {
						r.Errorf("%s: a second holder, while the first is valid for another %v", h.Key(), time.Until(h.ValidUntil()))
					}
					if second.FencingToken() <= h.FencingToken() {
						r.Errorf("%s: token %d after %d", h.Key(), second.FencingToken(), h.FencingToken())
					}
					second.Release(context.Background())
				}
				pause := time.NewTimer(100 * time.Millisecond)
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return all
}

// renewed waits until all leases have been renewed from now on, and returns those that are lost.
func (r *rig) renewed(all []holding) (lost []holding) {
	r.Helper()
	until := make([]time.Time, len(all))
	for i, h := range all {
		until[i] = h.ValidUntil().Add(100 * time.Millisecond) // it is as exact as the clock
	}
	for i, h := range all {
		r.until("renewed or lost", func() bool { return h.Context().Err() != nil || h.ValidUntil().After(until[i]) })
		if h.Context().Err() != nil {
			lost = append(lost, h)
		}
	}
	return lost
}

// survive kills a server, and waits until another has been promoted. Leases that others have go on. Leases of
// its own go on, too, if the promotion left them the time.
func (r *rig) survive(all []holding, victim *testutil.Server, server func(key string) *testutil.Server) {
	r.Helper()
	r.renewed(all)
	victim.Kill()
	killed := time.Now()
	var key string
	for _, h := range all {
		if h.server == victim {
			key = h.line
		}
	}
	r.until("promoted", func() bool { return server(key) != victim })
	took := time.Since(killed)
	var inTime, others []holding
	for _, h := range all {
		left := time.Until(h.ValidUntil())
		switch {
		case h.server == victim && left > failoverLag+1500*time.Millisecond:
			inTime = append(inTime, h)
		case h.server != victim && server(h.line) == h.server: // on a machine that is too slow, others fail over as well
			others = append(others, h)
		}
	}
	r.Logf("promoted after %v: %d leases had the time, %d are with other servers", took, len(inTime), len(others))
	// Where the machine is slow some may be lost all the same; a client that does not follow loses all.
	for what, leases := range map[string][]holding{"of the server that was killed": inTime, "of other servers": others} {
		lost := r.renewed(leases)
		for _, h := range lost {
			r.Logf("%s is lost (it was with %s, the server killed is %s): %v", h.Key(), h.server.Addr(), victim.Addr(), context.Cause(h.Context()))
		}
		if len(leases) >= 4 && 2*len(lost) > len(leases) {
			r.Errorf("%d of %d leases %s are lost", len(lost), len(leases), what)
		}
	}
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
	_, err := New([]redis.UniversalClient{witness.Client()}, quietly)
	wantInError(t, err, "belongs to a Redis Cluster", "redis.ClusterClient")
	all := r.hold(holder, contender, 36, server)
	victim := c.Servers[1]
	r.survive(all, victim, server)
	r.afterwards(all, holder)
}

// afterwards releases all leases, and sees that their keys can be acquired: those of the server that was
// promoted when the quarantine is over.
func (r *rig) afterwards(all []holding, p *process) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Minute)
	defer cancel()
	var each sync.WaitGroup
	for _, h := range all {
		each.Go(func() {
			// On a slow machine the promoted server may be out of reach for a while longer.
			if err := h.Release(ctx); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrUnavailable) {
				r.Errorf("%s: %v", h.Key(), err)
			}
			lease, err := p.Acquire(ctx, h.Key())
			for errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
				lease, err = p.Acquire(ctx, h.Key())
			}
			if err == nil {
				lease.Release(ctx)
			}
			if err != nil {
				r.Errorf("%s: %v", h.Key(), err)
			}
		})
	}
	each.Wait()
}

// A primary that a sentinel watches dies under leases. It has two replicas, because the one that is promoted needs one as
// well: by min-replicas-to-write a primary without one serves nobody.
func TestRealSentinelFailover(t *testing.T) {
	t.Parallel()
	c := testutil.NewSentinel(t, 2, time.Second, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
	r := &rig{T: t}
	holder := r.with([]redis.UniversalClient{c.Client()}, failover...)
	contender := r.with([]redis.UniversalClient{c.Client()}, failover...)
	server := func(string) *testutil.Server { return c.Primary() }
	_, err := Open([]string{"redis://" + c.Addr()}, quietly)
	wantInError(t, err, "Sentinel", "redis.NewFailoverClient")
	all := r.hold(holder, contender, 12, server)
	r.survive(all, c.Primary(), server)
	r.afterwards(all, holder)
}
