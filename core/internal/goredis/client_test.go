package goredis

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestConnections(t *testing.T) {
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
		"two":             {client(2, 0), 2},
		"three":           {client(3, 0), 3},
		"twenty":          {client(20, 0), 20},
		"fewer at a time": {client(20, 4), 4},
		"a cluster":       {cluster, 12},
		"embedded":        {struct{ *redis.Client }{client(8, 0).(*redis.Client)}, 8},
		"unknown":         {struct{ redis.UniversalClient }{client(99, 0)}, assumedPool},
	} {
		if got := Connections(c.client); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

type (
	ringInside    struct{ *redis.Ring }
	clusterInside struct{ *redis.ClusterClient }
	deepInside    struct{ *clusterInside }
	anyInside     struct{ redis.UniversalClient }
)

// A type that embeds a client has the client's methods, so its kind is recognized. A client behind an interface is not.
func TestClientsInWrappers(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer plain.Close()
	for _, c := range []redis.UniversalClient{ring, ringInside{ring}, &ringInside{ring}} {
		if f := Check([]redis.UniversalClient{c}, 1); len(f) != 1 || !strings.Contains(f[0].Error(), "a Ring spreads keys") {
			t.Errorf("%T: %v", c, f)
		}
	}
	inside := clusterInside{cluster}
	for c, want := range map[redis.UniversalClient]bool{cluster: true, inside: true, &inside: true, deepInside{&inside}: true,
		plain: false, anyInside{plain}: false, anyInside{cluster}: false, anyInside{ring}: false} {
		if err := Check([]redis.UniversalClient{c}, 1); err != nil {
			t.Error(err)
		}
		if (ClusterOf(c) != nil) != want {
			t.Errorf("%T is taken for the wrong kind of client", c)
		}
	}
}
