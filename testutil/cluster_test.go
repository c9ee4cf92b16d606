package testutil

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// served kills the primary was, and waits until client writes keys on the server that replaces it.
func served(t *testing.T, client redis.UniversalClient, was *Server, primary func() *Server) {
	t.Helper()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	was.Kill()
	Await(t, "another server is promoted", func() bool { return primary() != was })
	Await(t, "it is written to", func() bool {
		if c, ok := client.(*redis.ClusterClient); ok {
			c.ReloadState(context.Background())
		}
		return client.Set(t.Context(), "k", "w", 0).Err() == nil
	})
	if got := primary().admin().Get(t.Context(), "k").Val(); got != "w" {
		t.Errorf("the new primary has %q", got)
	}
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, 3, time.Second)
	was := c.Master(c.Servers[0], "k")
	witness := c.Servers[0]
	if witness == was {
		witness = c.Servers[1]
	}
	served(t, c.Client(), was, func() *Server { return c.Master(witness, "k") })
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	c := NewSentinel(t, 1, time.Second)
	served(t, c.Client(), c.Primary(), c.Primary)
}
