package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A fakeCluster is a Cluster of two shards. Only its topology exists.
type fakeCluster struct {
	*redis.ClusterClient
	first   atomic.Value // address of the first shard's master
	down    atomic.Bool  // the topology cannot be loaded
	reloads atomic.Int32
}

func newFakeCluster(t *testing.T) *fakeCluster {
	f := &fakeCluster{}
	f.first.Store("192.0.2.1:1")
	f.ClusterClient = redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		f.reloads.Add(1)
		if f.down.Load() {
			return nil, coretest.ErrRefused
		}
		return []redis.ClusterSlot{
			{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: f.first.Load().(string)}}},
			{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "192.0.2.2:2"}}},
		}, nil
	}})
	t.Cleanup(func() { f.Close() })
	return f
}

// node returns a node over f that has answered, and the name of a bucket on each shard.
func (f *fakeCluster) node(t *testing.T) (n *Node, first, second string) {
	n = newNode(0, f.ClusterClient)
	if _, err := f.MasterForKey(t.Context(), "{0}"); err != nil {
		t.Fatal(err)
	}
	n.routed = true
	for bucket := range wire.Buckets {
		name := fmt.Sprintf("{%d}", bucket)
		if master, _ := f.MasterForKey(t.Context(), name); master.Options().Addr == "192.0.2.1:1" {
			first = name
		} else {
			second = name
		}
	}
	f.reloads.Store(0)
	return n, first, second
}

func (n *Node) mustAdmit(t *testing.T, now clock.Instant, name string) *breaker {
	t.Helper()
	b, err := n.begin(now, time.Second, false, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Trouble on one shard does not affect the other shard, and makes the client reload the topology. It is over for the
// shard as soon as another master has it, whatever the result of requests to the old master.
func TestBreakerOfAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		n, first, second := f.node(t)

		stuck := n.mustAdmit(t, 0, first)
		for range MaxFailures {
			n.end(n.mustAdmit(t, 0, first), 0, coretest.ErrRefused)
		}
		n.mustAdmit(t, 0, first) // the probe
		if _, err := n.begin(0, time.Second, false, first); !errors.Is(err, ErrNotAsked) {
			t.Fatalf("a shard that fails: %v", err)
		}
		for range 9 {
			n.end(n.mustAdmit(t, 0, second), 0, nil)
		}
		if _, err := n.begin(0, time.Second, false, first); !errors.Is(err, ErrNotAsked) {
			t.Errorf("when the other shard has answered: %v", err)
		}

		synctest.Wait() // the client reloads the topology once
		f.first.Store("192.0.2.3:3")
		time.Sleep(time.Second)
		if _, err := n.begin(clock.Instant(time.Second-1), time.Second, false, first); !errors.Is(err, ErrNotAsked) {
			t.Fatalf("before the topology is known: %v", err)
		}
		time.Sleep(time.Second)
		for range 2 * MaxFailures {
			n.mustAdmit(t, clock.Instant(time.Second-1), first)
			n.end(stuck, clock.Instant(time.Second), coretest.ErrRefused)
			stuck.inFlight++
		}
	})
}

// An error that may mean that another server has taken over makes the client of a Cluster reload the topology, at a
// bounded rate. So does a shard that hangs.
func TestTopologyIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		n, name, _ := f.node(t)
		f.down.Store(true)
		var now clock.Instant
		for _, c := range []struct {
			err  error
			want int32
		}{
			{nil, 0}, {redisError{}, 0}, {redis.ErrPoolTimeout, 0}, {goredis.ErrOverloaded, 0},
			{replied("CLUSTERDOWN The cluster is down"), 1}, {replied("MOVED 1 c:3"), 1}, {coretest.ErrRefused, 1},
		} {
			now = now.Add(reloadEvery)
			f.reloads.Store(0)
			for i := range 9 {
				b, err := n.begin(now, time.Hour, true, name)
				if err != nil {
					t.Fatal(err)
				}
				n.end(b, now+clock.Instant(i), c.err)
				synctest.Wait()
			}
			if got := f.reloads.Load(); got != c.want {
				t.Errorf("%v: asked %d times, want %d", c.err, got, c.want)
			}
		}

		n.end(n.mustAdmit(t, now, name), now, nil)
		n.mustAdmit(t, now, name) // not answered
		f.reloads.Store(0)
		now = now.Add(2 * time.Second)
		n.begin(now, time.Second, false, name)
		synctest.Wait()
		if got := f.reloads.Load(); got != 1 {
			t.Errorf("asked %d times about a shard that hangs", got)
		}
	})
}

// If the topology of a Cluster is not known yet, it is not loaded on the goroutine of the caller.
func TestAdmissionDoesNotWaitForTheTopology(t *testing.T) {
	f := newFakeCluster(t)
	newNode(0, f.ClusterClient).mustAdmit(t, 0, "{1}")
	if n := f.reloads.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// Names on one server share a breaker, and the slots that limit the acquisitions over its connections.
func TestBreakersAreOfServers(t *testing.T) {
	f := newFakeCluster(t)
	n, first, second := f.node(t)
	for bucket := range wire.Buckets {
		if b := n.breaker(fmt.Sprintf("{%d}", bucket)); b != n.breaker(first) && b != n.breaker(second) {
			t.Fatalf("bucket %d has a breaker of its own", bucket)
		}
	}
	if n.breaker(first) == n.breaker(second) || n.breaker(first).slots == n.breaker(second).slots {
		t.Error("two servers share a breaker or slots")
	}
}

type replied string

func (e replied) Error() string { return string(e) }
func (replied) RedisError()     {}
