package testutil

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// watched is what the sentinel calls its primary.
const watched = "primary"

// Sentinel is a Redis primary with replicas, and a sentinel that promotes one
// of them when the primary does not answer.
type Sentinel struct {
	Servers []*Server // the first was the primary at the start

	sentinel *Server
	tb       testing.TB
}

// Addr is the address of the sentinel.
func (s *Sentinel) Addr() string { return s.sentinel.Addr() }

// NewSentinel starts a primary with so many replicas, of which one is promoted
// when the primary has not answered for downAfter. It returns when all are in
// sync and the sentinel knows them, and ends with the test. extraArgs are for
// primary and replicas. Without a redis-server it does what [NewServers] does.
func NewSentinel(tb testing.TB, replicas int, downAfter time.Duration, extraArgs ...string) *Sentinel {
	tb.Helper()
	args := append([]string{"--repl-diskless-sync-delay", "0"}, extraArgs...)
	c := &Sentinel{Servers: NewServers(tb, 1+replicas, args...), tb: tb}
	c.replicate()
	c.sentinel = startSentinel(tb, c.Servers[0].port, downAfter)
	Await(tb, "the sentinel knows the replicas", func() bool {
		info := c.sentinel.info("sentinel")
		return strings.Contains(info, "status=ok") && strings.Contains(info, fmt.Sprintf("slaves=%d,", replicas))
	})
	return c
}

// replicate makes all servers replicas of the first, and waits until they are in sync.
func (c *Sentinel) replicate() {
	c.tb.Helper()
	primary, replicas := c.Servers[0], c.Servers[1:]
	for _, s := range replicas {
		if err := s.admin().ReplicaOf(c.tb.Context(), "127.0.0.1", strconv.Itoa(primary.port)).Err(); err != nil {
			c.tb.Fatal(err)
		}
	}
	Await(c.tb, "replicas are in sync", func() bool {
		return strings.Count(primary.info("replication"), "state=online") == len(replicas)
	})
}

// startSentinel starts a sentinel for the primary at a port.
func startSentinel(tb testing.TB, primaryPort int, downAfter time.Duration) *Server {
	tb.Helper()
	text := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1\n", watched, primaryPort) +
		fmt.Sprintf("sentinel down-after-milliseconds %s %d\n", watched, downAfter.Milliseconds()) +
		fmt.Sprintf("sentinel failover-timeout %s 20000\n", watched)
	conf := filepath.Join(tb.TempDir(), "sentinel.conf")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	s, err := startWith(tb.TempDir(), []string{conf, "--sentinel"}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Client returns a new client that asks the sentinel for the primary, with the
// options go-redis has by default. It is closed when the test ends.
func (c *Sentinel) Client() *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: watched, SentinelAddrs: []string{c.sentinel.Addr()}})
	c.tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Primary returns the primary, as the sentinel has it.
func (c *Sentinel) Primary() *Server {
	c.tb.Helper()
	v, err := c.sentinel.admin().Do(c.tb.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", watched).StringSlice()
	if err != nil {
		c.tb.Fatal(err)
	}
	for _, s := range c.Servers {
		if s.Addr() == net.JoinHostPort(v[0], v[1]) {
			return s
		}
	}
	c.tb.Fatalf("the primary is %v, which nobody started", v)
	return nil
}
