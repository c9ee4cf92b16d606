package core

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/testutil"
)

// The error of Dial says what is wrong with a URL, but shows no part of the URL.
func TestDialNamesWhatIsWrongWithAURL(t *testing.T) {
	t.Parallel()
	const sentinel, cluster = "redis-sentinel://:hunter2@host:26379", "redis-cluster://:hunter2@host:7000"
	const bad = "it must be a URL that begins with redis://"
	for url, want := range map[string]string{
		"":                                      bad,
		"hunter2":                               bad,
		"localhost:6379":                        bad,
		"http://:hunter2@host":                  bad,
		"http-cluster://:hunter2@h":             bad,
		"redis:6379":                            bad,
		"rediss:6379":                           bad,
		"redis:hunter2":                         bad,
		"redis:/hunter2":                        bad,
		"redis":                                 bad,
		"unix:hunter2":                          bad,
		"redis-sentinel:26379":                  bad,
		"redis-cluster:7000":                    bad,
		"redis-socket://:hunter2@h":             bad,
		"hunter2-sentinel://host?master_name=m": bad,
		" redis://:hunter2@host:6379":           bad,
		"redis://:hunter2@host:6379 ":           "no space, not even at its ends",
		"redis://:hunter2@a:1,redis://b:2":      bad,
		"redis://hunter2,b:1":                   bad,
		"redis-sentinel://hunter2,other:1?master_name=m":   bad,
		"redis-cluster://hunter2,other:7000/1":             bad,
		"redis://:hunter2@host:6379?addr=other:6379":       bad,
		"redis://:hunter2@host:6379?hunter2=1":             bad,
		sentinel + "?master=hunter2":                       bad,
		sentinel + "?master_name=m&addr=hunter2":           bad,
		cluster + "?hunter2=1":                             bad,
		"redis://:hunter2@host:x?pool_size=5":              bad,
		"redis-cluster://:hunter2%zz@host:7000":            bad,
		"redis-sentinel://:hunter2\x7f@host?master_name=m": bad,
		"redis-cluster://:hunter2@host:7000\n":             bad,
		sentinel:                                           "master_name is missing",
		sentinel + "?master_name=m&replica_only=true":      "a node is a primary",
		sentinel + "?master_name=m&route_by_latency=true":  "a node is a primary",
		sentinel + "?route_randomly=true":                  "master_name is missing",
		cluster + "?read_only=true":                        "a node is a primary",
		cluster + "?route_by_latency=true":                 "a node is a primary",
		cluster + "?route_randomly=true":                   "a node is a primary",
		cluster + "/3":                                     "no database but 0",
	} {
		_, err := Operators.Dial([]string{url})
		wantErr(t, err, ErrInvalid)
		wantInError(t, err, "node 0: ", want)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows a password: %v", url, err)
		}
	}

	_, err := Operators.Dial([]string{"redis-sentinel://a,b:1?route_randomly=true", "redis-cluster://a,b:1/1?read_only=true"}, WithTLS(newCA(t).trusting()))
	wantInError(t, err, "node 0: master_name is missing", "nodes 0 and 1: it would ask replicas", "nodes 0 and 1: "+bad, "nodes 0 and 1: it is without TLS", "node 1: a Redis Cluster has no database")
	if n := strings.Count(err.Error(), "\n") + 1; n != 5 {
		t.Errorf("%d lines of 5, each of which says a fault once: %v", n, err)
	}

	mixed := []string{"redis://host", "rediss://host", "redis-sentinel://host?master_name=m", "redis-cluster://host"}
	_, err = Operators.Dial(mixed, WithTLS(newCA(t).trusting()))
	wantInError(t, err, "nodes 0, 2 and 3: it is without TLS")
	if strings.Contains(err.Error(), "node 1") {
		t.Error(err)
	}
}

// The clients of all kinds of nodes have settings that suit locks, and messages name their servers.
func TestDialledClients(t *testing.T) {
	t.Parallel()
	clients, err := Operators.Dial([]string{
		"redis://host:6379/3?max_retries=5&read_timeout=1h",
		"redis-sentinel://watcher:one@host:26379/3?addr=b:26379&master_name=mymaster&username=u&password=two&max_retries=5&dial_timeout=1h&min_idle_conns=0",
		"REDISS-CLUSTER://u:two@host:7000?addr=b:7000&write_timeout=1h&dialer_retries=7",
	}, TTL(time.Minute), WithClockWindow(0))
	if err != nil {
		t.Fatal(err)
	}
	defer closeClients(clients)

	want := must(newPolicy([]Option{TTL(time.Minute), WithClockWindow(0)}, 3)).nodeTimeout
	names := []string{"host:6379", "sentinel mymaster [host:26379 b:26379]", "cluster [host:7000 b:7000]"}
	for i, c := range clients {
		if got := goredis.AddrOf(c); got != names[i] {
			t.Errorf("%s, want %s", got, names[i])
		}

		var o *redis.Options
		switch c := c.(type) {
		case interface{ Options() *redis.Options }:
			o = c.Options()
		case *redis.ClusterClient: // the options that it uses for its servers
			all := c.Options()
			o = &redis.Options{MaxRetries: all.MaxRetries, DialerRetries: all.DialerRetries, ContextTimeoutEnabled: all.ContextTimeoutEnabled,
				DialTimeout: all.DialTimeout, ReadTimeout: all.ReadTimeout, WriteTimeout: all.WriteTimeout,
				MaintNotificationsConfig: all.MaintNotificationsConfig, Username: all.Username, Password: all.Password}
		}

		if o.MaxRetries > 0 || o.DialerRetries != 1 || !o.ContextTimeoutEnabled || o.DialTimeout != want || o.ReadTimeout != want || o.WriteTimeout != want ||
			o.MaintNotificationsConfig.Mode != "disabled" {
			t.Errorf("%s: %+v", names[i], o)
		}
		if i > 0 && (o.Username != "u" || o.Password != "two") {
			t.Errorf("%s: %s %s", names[i], o.Username, o.Password)
		}
		if i < 2 && o.DB != 3 {
			t.Errorf("%s: database %d", names[i], o.DB)
		}
		if repeats := goredis.MayRetry(c); repeats != (i == 2) {
			t.Errorf("%s: repeats %v", names[i], repeats)
		}
	}
}

// watchedOptions are options for a node that may fail over, with a short quarantine.
var watchedOptions = []Option{TTL(6 * time.Second), WithClockWindow(300 * time.Millisecond), withNodeTimeout(time.Second), WithRestartGuard(true), WithReplicaLag(time.Second), quietly}

// opened returns a Locker on one node. The node votes by then.
func opened(t *testing.T, url string, opts ...Option) *Locker {
	t.Helper()
	l := must(Open([]string{url}, opts...))
	t.Cleanup(func() { l.Close(over()) })
	// On a busy machine, the reply may be late.
	testutil.Await(t, "provisioned", func() bool { return l.Provision(t.Context()) == nil })
	return l
}

// wantWork checks that a function runs under each of n keys in the end. Failures in between are tried again.
func wantWork(t *testing.T, l *Locker, n int) {
	t.Helper()
	for i := range n {
		testutil.Await(t, fmt.Sprintf("work under k%d", i), func() bool {
			ran := false
			err := l.Do(t.Context(), fmt.Sprint("k", i), func(context.Context) error { ran = true; return nil }, MaxWait(30*time.Second))
			return ran && err == nil
		})
	}
}

// Open finds a primary by a URL with its Sentinels, even if one address is dead, and follows a failover.
func TestOpenSentinel(t *testing.T) {
	t.Parallel()
	c := testutil.NewSentinel(t, 1, time.Second)
	sentinel := redis.NewClient(&redis.Options{Addr: c.Addr()})
	defer sentinel.Close()
	for _, cmd := range []*redis.Cmd{
		sentinel.Do(t.Context(), "ACL", "SETUSER", "watcher", "on", ">one", "resetchannels", "&+switch-master", "&+replica-reconf-done", "-@all",
			"+sentinel|get-master-addr-by-name", "+sentinel|sentinels", "+subscribe", "+ping"),
		sentinel.Do(t.Context(), "ACL", "SETUSER", "default", "off"),
	} {
		if cmd.Err() != nil {
			t.Fatal(cmd.Err())
		}
	}
	for _, s := range c.Servers {
		succeeds(t, s.Client().Do(t.Context(), "ACL", "SETUSER", "service", "on", ">two", "~*", "&*", "+@all").Err())
	}

	url := "redis-sentinel://watcher:one@" + c.Addr() + "?addr=127.0.0.1:1&username=service&password=two&master_name="
	wantInError(t, refused(t, url+"nobody"), "node 0 (sentinel nobody [", "check master_name")
	wantInError(t, refused(t, strings.Replace(url, ":one@", ":guess@", 1)+"primary"), "WRONGPASS", "the Sentinels' user and password")
	wantInError(t, refused(t, strings.Replace(url, "=two", "=guess", 1)+"primary"), "WRONGPASS", "the server's user and password")

	l := opened(t, url+"primary", watchedOptions...)
	wantWork(t, l, 3)

	victim := c.Primary()
	victim.Kill()
	promoted := c.Servers[1].Client()
	testutil.Await(t, "promoted", func() bool { return strings.Contains(promoted.Info(t.Context(), "replication").Val(), "role:master") })
	wantWork(t, l, 3)
}

// Open finds a Redis Cluster by the addresses of some servers, even if one of them is dead, and follows a failover.
func TestOpenCluster(t *testing.T) {
	t.Parallel()
	c := testutil.NewCluster(t, 3, time.Second)
	l := opened(t, "redis-cluster://127.0.0.1:1?addr="+c.Servers[1].Addr()+"&addr="+c.Servers[0].Addr(), watchedOptions...)
	wantWork(t, l, 12)

	victim := c.Servers[1]
	victim.Kill()
	testutil.Await(t, "promoted", func() bool {
		return c.Master(c.Servers[0], "lockkit:{1}g") != victim && c.Master(c.Servers[0], "lockkit:{5}g") != victim && c.Master(c.Servers[0], "lockkit:{9}g") != victim
	})
	wantWork(t, l, 12)
}

// A server may have a certificate of a private CA.
func TestOpenTLS(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t), newCA(t)
	_, addr := ca.serve([]string{"localhost"})
	url := fmt.Sprintf("rediss://localhost:%d", portOf(addr))
	opts := []Option{unhurried, quietly}

	wantInError(t, refused(t, url), "certificate signed by unknown authority")
	wantInError(t, refused(t, url, WithTLS(other.trusting())), "certificate signed by unknown authority")

	trusting := append(opts, WithTLS(ca.trusting()))
	wantInError(t, refused(t, "rediss://"+addr, trusting...), "cannot validate certificate for 127.0.0.1")
	wantWork(t, opened(t, url, trusting...), 1)

	named := ca.trusting()
	named.ServerName = "localhost"
	wantWork(t, opened(t, "rediss://"+addr, append(opts, WithTLS(named))...), 1)
	wantWork(t, opened(t, "rediss://"+addr+"?skip_verify=true", append(opts, WithTLS(named))...), 1)
	if named.InsecureSkipVerify {
		t.Error("the caller's configuration has been changed")
	}
}

// The servers of a Cluster mostly know each other by IP addresses. Their certificates must then match the host of the
// URL.
func TestOpenClusterTLS(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	for _, known := range []struct{ certified, announced string }{{"localhost", "127.0.0.1"}, {"127.0.0.1", "127.0.0.1"}} {
		server, addr := ca.serve([]string{known.certified}, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", known.announced)
		succeeds(t, server.Client().Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
		url := fmt.Sprintf("rediss-cluster://%s:%d", known.certified, portOf(addr))
		l := opened(t, url, unhurried, quietly, WithTLS(ca.trusting()))
		wantWork(t, l, 2)
		wantInError(t, refused(t, url), "node 0 (cluster [", "WithTLS")
	}
}

// A Sentinel and its primary may accept only TLS.
func TestOpenSentinelTLS(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	_, primary := ca.serve([]string{"localhost"})
	url := fmt.Sprintf("rediss-sentinel://localhost:%d?master_name=primary", portOf(ca.sentinel(portOf(primary))))
	opts := []Option{unhurried, quietly}
	wantInError(t, refused(t, url), "node 0 (sentinel primary [", "certificate signed by unknown authority", "WithTLS")
	wantWork(t, opened(t, url, append(opts, WithTLS(ca.trusting()))...), 2)
}

// serverWithTLS starts a server that is no Redis, and whose certificate no client trusts.
func serverWithTLS(t *testing.T, conf *tls.Config) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it would log clients that do not trust the server
	server.TLS = conf
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// A server may require a certificate of the client.
func TestOpenMutualTLS(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	_, addr := ca.serve([]string{"127.0.0.1"}, "--tls-auth-clients", "yes")
	opts := []Option{unhurried, quietly}
	conf := ca.trusting()
	conf.Certificates = append(conf.Certificates, ca.pair())
	wantWork(t, opened(t, "rediss://"+addr, append(opts, WithTLS(conf))...), 1)
}

// Dial does not look up host names. By default, go-redis does so for maintenance notifications.
func TestDialResolvesNothing(t *testing.T) {
	system := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("a name is looked up")
		return nil, net.ErrClosed
	}}
	t.Cleanup(func() { net.DefaultResolver = system })
	clients, err := Operators.Dial([]string{"redis://nowhere.example:6379", "rediss://nowhere.example:6379", "redis-cluster://nowhere.example:6379"})
	if err != nil {
		t.Fatal(err)
	}
	if err := closeClients(clients); err != nil {
		t.Error(err)
	}
}
