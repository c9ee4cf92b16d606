package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/testutil"
)

// On a Redis Cluster, the keys of a set are in several buckets, on several shards. The set is held, refused, waited for
// and released as on a plain server.
func TestRealClusterSets(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 3, 5*time.Second)
	locker := func() *process {
		p := &process{Locker: must(New([]redis.UniversalClient{c.Client()}, quietly, unhurried))}
		t.Cleanup(func() { p.Close(over()) })
		return p
	}
	p, other := locker(), locker()

	var keys []string
	buckets, shards := map[*node.Bucket]bool{}, map[*testutil.Server]bool{}
	for i := range 12 {
		key := fmt.Sprint("account-", i)
		keys = append(keys, key)
		buckets[p.e.Bucket(key)] = true
		shards[c.Master(c.Servers[0], p.e.Keys.Resource(key))] = true
	}
	if len(buckets) < 3 || len(shards) < 2 {
		t.Fatalf("the keys are in %d buckets on %d shards", len(buckets), len(shards))
	}

	set := must(p.AcquireAll(t.Context(), keys))
	for _, key := range keys {
		_, err := other.TryAcquire(t.Context(), key)
		wantErr(t, err, ErrHeld)
	}
	_, err := other.TryAcquireAll(t.Context(), keys)
	wantErr(t, err, ErrHeld)

	got := make(chan *Leases, 1)
	go func() { got <- must(other.AcquireAll(t.Context(), keys)) }()
	succeeds(t, set.Release(t.Context()))
	set = testutil.Receive(t, got)
	succeeds(t, set.Context().Err())

	_, err = p.TryAcquireAll(t.Context(), append([]string{"a free key", "one more free key"}, keys[11]))
	wantErr(t, err, ErrHeld)
	free := must(p.TryAcquireAll(t.Context(), []string{"one more free key", "a free key"}))
	succeeds(t, free.Release(t.Context()))
	succeeds(t, set.Release(t.Context()))
}
