package core

import (
	"crypto/tls"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// Diagnose reports servers of the wrong kind, clients of the wrong kind, and servers that are listed twice.
func TestRealServersThatAreNoNodes(t *testing.T) {
	t.Parallel()
	diagnose := func(c redis.UniversalClient) Diagnosis {
		t.Helper()
		t.Cleanup(func() { c.Close() })
		return diagnosed(t, []redis.UniversalClient{c}, quietly, unhurried)
	}
	sentinel := testutil.NewSentinel(t, 1, time.Minute)
	d := diagnose(redis.NewClient(&redis.Options{Addr: sentinel.Addr()}))
	wantFindings(t, d, found{"fault", "no_node", 0})
	wantAdvice(t, d, "NewFailoverClient")
	d = diagnosed(t, []redis.UniversalClient{sentinel.Client()}, quietly, unhurried, WithRestartGuard(true))
	wantFindings(t, d, found{"risk", "replica_lag", 0}, found{"warning", "not_provisioned", -1})

	plain := testutil.NewServers(t, 1)[0]
	hello := redis.NewClient(&redis.Options{Addr: plain.Addr(), TLSConfig: &tls.Config{ServerName: "localhost"}})
	defer hello.Close()

	// Redis takes the beginning of the TLS handshake for a command, and waits for the rest. So unhurried is not set.
	d = must(Operators.Diagnose(t.Context(), []redis.UniversalClient{hello}, quietly))
	wantFindings(t, d, found{"fault", "unreachable", 0})
	wantAdvice(t, d, "TLS on one side only")

	secret := serverWithTLS(t, nil)
	for _, name := range []string{"localhost", "example.com"} {
		// By default go-redis dials twenty times, which takes a busy machine longer than the node timeout.
		d = diagnose(redis.NewClient(&redis.Options{
			Addr: secret.Listener.Addr().String(), TLSConfig: &tls.Config{ServerName: name}, MaxRetries: -1, DialerRetries: 1,
		}))
		wantFindings(t, d, found{"fault", "tls", 0})
		wantAdvice(t, d, "the CA and name that the client asks for")
	}

	both := []redis.UniversalClient{plain.Client(), testutil.NewServers(t, 1)[0].Client(), plain.Client()}
	d = diagnosed(t, both, quietly, unhurried, WithRestartGuard(false))
	if !slices.Contains(d.brief(), found{"fault", "same_server", 2}) {
		t.Errorf("findings:\n%s", d.text())
	}
}

// A Redis Cluster is one node, and Diagnose examines each of its masters.
func TestRealClusterDiagnosis(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 3, 5*time.Second)
	opts := []Option{quietly, unhurried, WithReplicaLag(15 * time.Second), WithRestartGuard(true)}
	client := []redis.UniversalClient{c.Client()}
	d := diagnosed(t, client, opts...)
	if len(d.Nodes) != 3 || !slices.Contains(d.brief(), found{"warning", "not_provisioned", -1}) {
		t.Errorf("%d servers:\n%s", len(d.Nodes), d.text())
	}

	l, err := New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(over())
	succeeds(t, l.Provision(t.Context()))
	for range 20 {
		if err := l.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, s := range c.Servers {
		succeeds(t, s.Client().ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
		s.Client().ConfigSet(t.Context(), "appendonly", "yes")
	}
	d = diagnosed(t, client, opts...)
	wantFindings(t, d)
	for _, n := range d.Nodes {
		if n.Node != 0 || !n.Reached || n.Err != nil {
			t.Errorf("%+v", n)
		}
	}

	nowhere := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer nowhere.Close()
	wantFindings(t, diagnosed(t, []redis.UniversalClient{nowhere}, opts...), found{"fault", "unreachable", 0})
	wantFindings(t, diagnosed(t, []redis.UniversalClient{c.Servers[0].Client()}, opts...), found{"fault", "no_node", 0})

	bad := c.Master(c.Servers[0], "lockkit:{5}p")
	succeeds(t, bad.Client().Del(t.Context(), "lockkit:{5}g").Err())
	d = diagnosed(t, client, opts...)
	wantFindings(t, d, found{"warning", "quarantined", 0})
	for _, n := range d.Nodes {
		if len(n.Findings) > 0 && n.Addr != bad.Addr() {
			t.Errorf("%+v", n)
		}
	}
}
