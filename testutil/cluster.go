package testutil

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster of real servers, in which each master has one
// replica. It needs Redis 7 or newer.
type Cluster struct {
	// At the start the servers of the first half are the masters, and Servers[i+len(Servers)/2] is the replica of
	// Servers[i].
	Servers []*Server

	tb testing.TB
}

// NewCluster starts a Cluster with the given number of masters. A master that
// does not answer for nodeTimeout is replaced by its replica. NewCluster
// returns when all slots are served and every replica is in sync. The servers
// are closed when the test ends. Without a redis-server it skips or fails the
// test, as [NewServers] does.
func NewCluster(tb testing.TB, masters int, nodeTimeout time.Duration) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for range 2 * masters {
		c.Servers = append(c.Servers, startClusterServer(tb, nodeTimeout))
	}

	ids := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		ids[i] = c.do(s, "CLUSTER", "MYID").(string)
		if i < masters {
			const slots = 16384
			c.do(s, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
			c.do(s, "CLUSTER", "ADDSLOTSRANGE", i*slots/masters, (i+1)*slots/masters-1)
		}
		if i > 0 {
			c.do(c.Servers[0], "CLUSTER", "MEET", "127.0.0.1", s.port, s.busPort)
		}
	}

	c.await("all servers know each other", func(s *Server) bool {
		isUnknown := func(id string) bool { return !strings.Contains(c.nodes(s), id) }
		return !slices.ContainsFunc(ids, isUnknown)
	})

	// A server can replicate only a master that it knows.
	for i, s := range c.Servers[masters:] {
		c.do(s, "CLUSTER", "REPLICATE", ids[i])
	}

	c.await("all servers know masters and replicas, and these are in sync", func(s *Server) bool {
		return strings.Count(c.nodes(s), "slave ") == masters && c.isHealthy(s) && isReplicating(s)
	})

	return c
}

// isHealthy reports whether s considers the Cluster healthy: all slots are served.
func (c *Cluster) isHealthy(s *Server) bool {
	info := c.do(s, "CLUSTER", "INFO").(string)
	return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
}

// isReplicating reports whether s is a replica that is connected to its master, or the master of a replica in sync.
func isReplicating(s *Server) bool {
	replication := s.info("replication")
	return strings.Contains(replication, "master_link_status:up") || strings.Contains(replication, "state=online")
}

// startClusterServer starts a server in cluster mode.
func startClusterServer(tb testing.TB, nodeTimeout time.Duration) *Server {
	tb.Helper()
	requireServer(tb)
	var lastErr error
	for range portTries { // another process may take the port of the bus
		port, err := freePort()
		if err != nil {
			tb.Fatal(err)
		}
		s, err := StartServer(tb.TempDir(),
			"--cluster-enabled", "yes",
			"--cluster-port", strconv.Itoa(port),
			"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
			"--cluster-require-full-coverage", "no", // otherwise all masters refuse requests until a promotion
			"--repl-diskless-sync-delay", "0")
		if err == nil {
			s.busPort = port
			tb.Cleanup(s.Close)
			return s
		}
		lastErr = err
	}

	tb.Fatal(lastErr)
	return nil
}

// Client returns a new client with the default options of go-redis. It is
// closed when the test ends.
func (c *Cluster) Client() *redis.ClusterClient {
	o := &redis.ClusterOptions{}
	for _, s := range c.Servers {
		o.Addrs = append(o.Addrs, s.Addr())
	}
	client := redis.NewClusterClient(o)
	c.tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Master returns the server that serves key, according to server s. If s knows
// none, as during a failover, Master waits. It fails the test if s does not
// answer.
func (c *Cluster) Master(s *Server, key string) (master *Server) {
	c.tb.Helper()
	slot := c.do(s, "CLUSTER", "KEYSLOT", key).(int64)
	Await(c.tb, fmt.Sprintf("a server serves slot %d", slot), func() bool {
		master = c.masterOf(s, slot)
		return master != nil
	})
	return master
}

// masterOf returns the server that serves a slot, according to server s, or nil.
func (c *Cluster) masterOf(s *Server, slot int64) *Server {
	c.tb.Helper()
	for _, v := range c.do(s, "CLUSTER", "SLOTS").([]any) {
		r := v.([]any) // first slot, last slot, master, replicas
		if slot < r[0].(int64) || slot > r[1].(int64) {
			continue
		}
		port := r[2].([]any)[1].(int64)
		for _, s := range c.Servers {
			if int64(s.port) == port {
				return s
			}
		}
	}
	return nil
}

func (c *Cluster) nodes(s *Server) string { return c.do(s, "CLUSTER", "NODES").(string) }

// do returns the reply of s to a command, and fails the test on an error.
func (c *Cluster) do(s *Server, args ...any) any {
	c.tb.Helper()
	v, err := s.admin().Do(c.tb.Context(), args...).Result()
	if err != nil {
		c.tb.Fatalf("%v: %v", args, err)
	}
	return v
}

// await waits until holds returns true for every server.
func (c *Cluster) await(what string, holds func(*Server) bool) {
	c.tb.Helper()
	for _, s := range c.Servers {
		Await(c.tb, what, func() bool { return holds(s) })
	}
}
