package core

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// With what the manual says of Clusters, its ACL is enough for them, too.
func TestWaitingInAClusterWithTheManualsRights(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 1, 5*time.Second)
	args := []any{"ACL", "SETUSER", "lockkit", "reset"}
	for _, rule := range append(manualsACL(t), "+spublish", "+ssubscribe", "+cluster|slots") {
		if !slices.Contains([]string{"+publish", "+subscribe"}, rule) {
			args = append(args, rule)
		}
	}
	for _, s := range c.Servers {
		succeeds(t, s.Client().Do(t.Context(), args...).Err())
	}
	var log logbook.Book
	var locks [2]*Locker
	for i := range locks {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Servers[0].Addr()}, Username: "lockkit", Password: "secret"})
		defer client.Close()
		var err error
		if locks[i], err = New([]redis.UniversalClient{client}, unhurried, WithLogger(log.Logger())); err != nil {
			t.Fatal(err)
		}
		defer locks[i].Close(over())
	}
	held, err := locks[0].TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := locks[1].Inspect(t.Context(), "k"); err != nil || s.Holder == nil || s.Holder.Token != held.FencingToken() {
		t.Errorf("%+v, %v", s, err)
	}
	master := c.Servers[0].Client()
	got := acquiring(locks[1], t.Context(), "k")
	testutil.Await(t, "subscribed", func() bool { return len(master.PubSubShardChannels(t.Context(), "lockkit:*").Val()) > 0 })
	succeeds(t, held.Release(t.Context()))
	next := testutil.Receive(t, got)
	if next.err != nil {
		t.Fatal(next.err)
	}
	succeeds(t, next.lease.Release(t.Context()))
	log.Want(t, 0, "")
	if err := deniedInScripts(t, master); err != nil {
		t.Error(err)
	}
}
