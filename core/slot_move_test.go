package core

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// moveSlot moves the slot of a key from its master to another one, with all keys, as redis-cli --cluster reshard does.
func moveSlot(t *testing.T, c *testutil.Cluster, key string) (to *testutil.Server) {
	t.Helper()
	from := c.Master(c.Servers[0], key)
	to = c.Servers[0]
	if from == to {
		to = c.Servers[1]
	}

	do := func(s *testutil.Server, args ...any) any {
		t.Helper()
		v, err := s.Client().Do(t.Context(), args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}

	slot := do(from, "CLUSTER", "KEYSLOT", key)
	idFrom, idTo := do(from, "CLUSTER", "MYID"), do(to, "CLUSTER", "MYID")
	host, portText := split(to.Addr())
	port := must(strconv.Atoi(portText))

	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", idFrom)
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", idTo)
	for keys := do(from, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any); len(keys) > 0; keys = do(from, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any) {
		do(from, append([]any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}, keys...)...)
	}

	for _, s := range []*testutil.Server{to, from} {
		do(s, "CLUSTER", "SETSLOT", slot, "NODE", idTo)
	}
	return to
}

// When a slot moves, the old master ends the subscriptions to its channel, and waiters subscribe to the new master.
func TestWaitersAreToldAfterASlotHasMoved(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 2, 5*time.Second)
	r := &rig{T: t}
	opts := []Option{sturdy, WithRestartGuard(false)} // with the guard, the new master would begin a quarantine
	holder := r.with([]redis.UniversalClient{c.Client()}, opts...)
	waiter := r.with([]redis.UniversalClient{c.Client()}, opts...)

	lease := r.acquire(holder, "k")
	got := make(chan error, 1)
	go func() {
		next, err := waiter.Acquire(context.Background(), "k")
		if err == nil {
			err = next.Release(context.Background())
		}
		got <- err
	}()

	resource, channel := holder.e.Keys.Resource("k"), waiter.e.Bucket("k").Channel.Name
	listened := func(s *testutil.Server) bool {
		return s.Client().PubSubShardNumSub(t.Context(), channel).Val()[channel] > 0
	}
	before := c.Master(c.Servers[0], resource)
	testutil.Await(t, "the old master is listened to", func() bool { return listened(before) })

	to := moveSlot(t, c, resource)
	testutil.Await(t, "the new master is listened to", func() bool { return listened(to) })

	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
