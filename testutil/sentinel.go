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

// primaryName is the primary's name in the configuration of the sentinel.
const primaryName = "primary"

// Sentinel is a Redis primary with replicas, and a sentinel that promotes one
// of them when the primary does not answer.
type Sentinel struct {
	Servers []*Server // the first was the primary at the start

	sentinel *Server
	tb       testing.TB
}

// Addr returns the address of the sentinel.
func (s *Sentinel) Addr() string { return s.sentinel.Addr() }

// NewSentinel starts a primary with the given number of replicas, and a
// sentinel that promotes one of these if the primary has not answered for
// downAfter. It returns when all replicas are in sync and the sentinel knows
// them. The servers are closed when the test ends. extraArgs are for the
// primary and the replicas. Without a redis-server it skips or fails the test,
// as [NewServers] does.
func NewSentinel(tb testing.TB, replicas int, downAfter time.Duration, extraArgs ...string) *Sentinel {
	tb.Helper()
	args := append([]string{"--repl-diskless-sync-delay", "0"}, extraArgs...)
	s := &Sentinel{Servers: NewServers(tb, 1+replicas, args...), tb: tb}
	s.replicate()

	s.sentinel = startSentinel(tb, s.Servers[0].port, downAfter)
	Await(tb, "the sentinel knows the replicas", func() bool {
		info := s.sentinel.info("sentinel")
		return strings.Contains(info, "status=ok") && strings.Contains(info, fmt.Sprintf("slaves=%d,", replicas))
	})

	return s
}

// replicate makes all servers but the first its replicas, and waits until they are in sync.
func (s *Sentinel) replicate() {
	s.tb.Helper()
	primary, replicas := s.Servers[0], s.Servers[1:]
	for _, r := range replicas {
		if err := r.admin().ReplicaOf(s.tb.Context(), "127.0.0.1", strconv.Itoa(primary.port)).Err(); err != nil {
			s.tb.Fatal(err)
		}
	}

	Await(s.tb, "replicas are in sync", func() bool {
		return strings.Count(primary.info("replication"), "state=online") == len(replicas)
	})
}

// startSentinel starts a sentinel for the primary at a port of 127.0.0.1.
func startSentinel(tb testing.TB, primaryPort int, downAfter time.Duration) *Server {
	tb.Helper()
	text := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1\n", primaryName, primaryPort) +
		fmt.Sprintf("sentinel down-after-milliseconds %s %d\n", primaryName, downAfter.Milliseconds()) +
		fmt.Sprintf("sentinel failover-timeout %s 20000\n", primaryName)
	conf := filepath.Join(tb.TempDir(), "sentinel.conf")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}

	s, err := startWithConfig(tb.TempDir(), []string{conf, "--sentinel"}, nil)
	if err != nil {
		tb.Fatal(err)
	}

	tb.Cleanup(s.Close)
	return s
}

// Client returns a new client that asks the sentinel for the primary, with the
// default options of go-redis. It is closed when the test ends.
func (s *Sentinel) Client() *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    primaryName,
		SentinelAddrs: []string{s.sentinel.Addr()},
	})
	s.tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Primary returns the server that the sentinel considers the primary.
func (s *Sentinel) Primary() *Server {
	s.tb.Helper()
	v, err := s.sentinel.admin().Do(s.tb.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", primaryName).StringSlice()
	if err != nil {
		s.tb.Fatal(err)
	}

	for _, server := range s.Servers {
		if server.Addr() == net.JoinHostPort(v[0], v[1]) {
			return server
		}
	}

	s.tb.Fatalf("the primary is %v, which nobody started", v)
	return nil
}
