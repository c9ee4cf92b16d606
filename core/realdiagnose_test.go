package core

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests the findings of Diagnose about real servers. Diagnose connects as the operator of the manual.

// A clinic is a set of real servers with the operator of the manual as their user.
type clinic struct {
	*testing.T
	servers []*testutil.Server
	opts    []Option
}

func newClinic(t *testing.T, n int) *clinic {
	t.Parallel()
	c := &clinic{t, testutil.NewServers(t, n, "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"),
		[]Option{quietly, unhurried, WithRestartGuard(true)}}
	for i := range c.servers {
		c.enrol(i, nil)
	}
	return c
}

// do sends a command to server i as its administrator.
func (c *clinic) do(i int, args ...any) {
	c.Helper()
	if err := c.servers[i].Client().Do(c.Context(), args...).Err(); err != nil {
		c.Fatalf("server %d: %v: %v", i, args, err)
	}
}

// enrol creates the operator of the manual on server i, without the rights for which denied returns true.
func (c *clinic) enrol(i int, denied func(rule string) bool) {
	c.Helper()
	args := []any{"ACL", "SETUSER", "operator", "reset"}
	for _, rule := range manualsUser(c.T, "operator") {
		if denied == nil || !denied(rule) {
			args = append(args, rule)
		}
	}
	c.do(i, args...)
}

// clients returns clients with the user and password of the operator.
func (c *clinic) clients() (all []redis.UniversalClient) {
	for _, s := range c.servers {
		all = append(all, s.ClientWith(func(o *redis.Options) { o.Username, o.Password = "operator", "secret" }))
	}
	return all
}

// provision empties all servers and declares them new.
func (c *clinic) provision() {
	c.Helper()
	for i := range c.servers {
		c.do(i, "FLUSHALL")
	}
	l, err := New(c.clients(), c.opts...)
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close(over())
	if err := l.Provision(c.Context()); err != nil {
		c.Fatal(err)
	}
	if err := l.Ready(c.Context()); err != nil {
		c.Error(err)
	}
}

func (c *clinic) diagnose(clients []redis.UniversalClient, opts ...Option) Diagnosis {
	c.Helper()
	return diagnosed(c.T, clients, append(slices.Clone(c.opts), opts...)...)
}

// diagnosed returns what Diagnose finds about real servers. It repeats the diagnosis until no server is too slow to
// answer, as on a machine that stands still.
func diagnosed(t *testing.T, clients []redis.UniversalClient, opts ...Option) (d Diagnosis) {
	t.Helper()
	testutil.Await(t, "each server that is up answers in time", func() bool {
		d = must(Operators.Diagnose(t.Context(), clients, opts...))
		isSlow := func(n NodeDiagnosis) bool { return errors.Is(n.Err, node.ErrNoAnswer) }
		return !slices.ContainsFunc(d.Nodes, isSlow)
	})
	return d
}

// A sickness is a fault of one server of a clinic.
type sickness struct {
	name          string
	breaks, mends func()
	clients       func(all []redis.UniversalClient)
	want          found
	says          []string
}

// sicknesses returns the faults of server i that operators know.
func (c *clinic) sicknesses(i int, outside *testutil.Server) []sickness {
	host, port, _ := net.SplitHostPort(outside.Addr())
	memory := func(limit, policy string) func() {
		return func() {
			c.do(i, "CONFIG", "SET", "maxmemory", limit)
			c.do(i, "CONFIG", "SET", "maxmemory-policy", policy)
		}
	}
	return []sickness{
		{name: "emptied", breaks: func() { c.do(i, "FLUSHALL") }, mends: c.provision,
			want: found{"warning", "quarantined", i}, says: []string{"has no guard record", "votes by itself"}},
		{name: "replica", breaks: func() { c.do(i, "REPLICAOF", host, port) }, mends: func() { c.do(i, "REPLICAOF", "NO", "ONE"); c.provision() },
			want: found{"fault", "replica", i}, says: []string{"must be a master of its own"}},
		{name: "evicting", breaks: memory("100mb", "allkeys-lru"), mends: memory("0", "noeviction"),
			want: found{"fault", "evicting", i}, says: []string{"allkeys-lru", "set it to noeviction"}},
		{name: "clock", clients: func(all []redis.UniversalClient) { all[i].(*redis.Client).AddHook(wrongClock(7 * time.Second)) },
			want: found{"fault", "clock_off", i}, says: []string{"its clock is off by ", "NTP"}},
		{name: "right", breaks: func() { c.enrol(i, only("+exists", "+zadd")) }, mends: func() { c.enrol(i, nil) },
			want: found{"fault", "rights", i}, says: []string{"denies its user operator", "exists", "ACL SETUSER operator +exists +zadd"}},
		{name: "password", clients: func(all []redis.UniversalClient) {
			all[i] = c.servers[i].ClientWith(func(o *redis.Options) { o.Username, o.Password = "operator", "guess" })
		}, want: found{"fault", "credentials", i}, says: []string{"WRONGPASS", "user and password"}},
		{name: "down", breaks: func() { c.servers[i].Kill() },
			want: found{"fault", "unreachable", i}, says: []string{"refused", "start the server"}},
	}
}

// Diagnose reports each fault that operators know in one finding, and nothing else. One server of 1, 3 or 5 has one
// fault at a time.
func TestRealDiagnosis(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newClinic(t, n)
			c.provision()
			wantFindings(t, c.diagnose(c.clients()))
			for _, s := range c.sicknesses(n-1, testutil.NewServers(t, 1)[0]) {
				c.suffers(s)
				if t.Failed() {
					t.Fatal(s.name)
				}
			}
		})
	}
}

// suffers breaks a server, checks the findings, and repairs the server.
func (c *clinic) suffers(s sickness) {
	c.Helper()
	if s.breaks != nil {
		s.breaks()
	}
	clients := c.clients()
	if s.clients != nil {
		s.clients(clients)
	}
	if len(c.servers) == 1 && s.name == "emptied" { // no other server shows that this one was in use
		s.want, s.says = found{"warning", "not_provisioned", -1}, []string{"admin.Provision"}
	}
	d := c.diagnose(clients)
	wantFindings(c.T, d, s.want)
	wantAdvice(c.T, d, s.says...)
	if s.mends != nil {
		s.mends()
	}
}

// wrongClock is a hook that adds a duration to the server's time.
type wrongClock time.Duration

func (h wrongClock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h wrongClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h wrongClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if a, ok := cmd.(goredis.OnceAny); ok && cmd.Name() == "time" {
			at := a.Cmder.(*redis.TimeCmd)
			at.SetVal(at.Val().Add(time.Duration(h)))
		}
		return err
	}
}

// service returns a client of a server with the manual's user for services.
func (c *clinic) service(server int) redis.UniversalClient {
	args := []any{"ACL", "SETUSER", "lockkit", "reset"}
	for _, rule := range manualsACL(c.T) {
		args = append(args, rule)
	}
	c.do(server, args...)
	return c.servers[server].ClientWith(func(o *redis.Options) { o.Username, o.Password = "lockkit", "secret" })
}

// Diagnose with the user of a service finds nothing, although that user has fewer rights than the operator.
func TestDiagnoseAsAService(t *testing.T) {
	c := newClinic(t, 1)
	c.provision()
	wantFindings(t, c.diagnose([]redis.UniversalClient{c.service(0)}))
}

// If the operator lacks a right of the manual's user for services, Diagnose names it, and the line that the finding
// shows repairs the user.
func TestDiagnoseNamesEachRight(t *testing.T) {
	c := newClinic(t, 1)
	c.provision()
	line := regexp.MustCompile(`(?m)(ACL SETUSER operator .*)$`)
	tried := 0
	for _, rule := range manualsACL(t) {
		if !strings.ContainsAny(rule[:1], "+~&") {
			continue
		}
		tried++

		c.do(0, "SCRIPT", "FLUSH")
		c.enrol(0, only(rule))
		d := c.diagnose(c.clients())
		wantFindings(t, d, found{"fault", "rights", 0})
		shown := line.FindString(d.text())
		if given := strings.TrimPrefix(shown, "ACL SETUSER operator "); given != rule {
			t.Fatalf("without %s: %s", rule, d.text())
		}

		var mend []any
		for word := range strings.FieldsSeq(shown) {
			mend = append(mend, word)
		}
		c.do(0, mend...)
		if d = c.diagnose(c.clients()); len(d.brief()) > 0 {
			t.Errorf("without %s, and mended by %s: %s", rule, shown, d.text())
		}
	}

	// While the command is denied, a script cannot try the channel, but both rights are named.
	c.enrol(0, only("+publish", "&lockkit:*"))
	wantAdvice(t, c.diagnose(c.clients()), "ACL SETUSER operator +publish &lockkit:*")

	if tried < 20 {
		t.Errorf("%d rights tried", tried)
	}
}

// Diagnose and Ready report a server that is out of memory and a server that misses its replicas. They report nothing
// about a server that has memory left.
func TestRealServersThatTakeNoWrites(t *testing.T) {
	c := newClinic(t, 3)
	c.provision()
	c.do(0, "SET", "filler", strings.Repeat("x", 4<<20))
	c.do(0, "CONFIG", "SET", "maxmemory", "1mb")
	c.do(1, "CONFIG", "SET", "min-replicas-to-write", "1")
	c.do(2, "CONFIG", "SET", "maxmemory", "1gb")

	d := c.diagnose(c.clients())
	wantFindings(t, d, found{"fault", "no_quorum", -1}, found{"fault", "writes_refused", 0}, found{"fault", "writes_refused", 1})
	wantAdvice(t, d, "OOM", "raise maxmemory", "NOREPLICAS", "bring its replicas back")

	l, err := New(c.clients()[2:], c.opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(over())
	if err := l.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	for i, says := range []string{"OOM", "NOREPLICAS"} {
		l := must(New(c.clients()[i:i+1], c.opts...))
		defer l.Close(over())
		wantNotReady(t, l.Ready(t.Context()), says)
	}
}

// Attaching a first replica changes the history of a node, so the node is in quarantine. WithReplicaLag is then needed,
// and the server must stop accepting writes if its replicas lag.
func TestRealFirstReplica(t *testing.T) {
	c := newClinic(t, 3)
	c.provision()
	replica := testutil.NewServers(t, 1)[0].Client()
	host, port, _ := net.SplitHostPort(c.servers[1].Addr())
	succeeds(t, replica.ReplicaOf(t.Context(), host, port).Err())
	master := c.servers[1].Client()
	testutil.Await(t, "the replica is in sync", func() bool {
		return strings.Contains(master.Info(t.Context(), "replication").Val(), "state=online")
	})

	lag := WithReplicaLag(12 * time.Second)
	d := c.diagnose(c.clients())
	wantFindings(t, d, found{"risk", "replica_lag", 1}, found{"warning", "quarantined", 1})
	wantAdvice(t, d, "its first replica was attached", "set WithReplicaLag")

	services := c.clients()
	services[1] = c.service(1)
	serves := []found{{"risk", "replica_lag", 1}, {"warning", "quarantined", 1}}
	wantFindings(t, c.diagnose(c.clients(), lag), serves...)
	wantFindings(t, c.diagnose(services, lag), serves...)

	c.do(1, "CONFIG", "SET", "min-replicas-to-write", "1")
	wantFindings(t, c.diagnose(c.clients(), lag), found{"warning", "quarantined", 1})
	wantFindings(t, c.diagnose(services, lag), found{"warning", "quarantined", 1})

	c.do(1, "CONFIG", "SET", "min-replicas-max-lag", "0")
	wantFindings(t, c.diagnose(c.clients(), lag), serves...)

	c.do(1, "CONFIG", "SET", "min-replicas-max-lag", "10")
	wantFindings(t, c.diagnose(c.clients(), WithReplicaLag(5*time.Second)), found{"risk", "replica_lag", 1}, found{"warning", "quarantined", 1})
}

// A backup over the network changes the history of a node at once, and again repl-backlog-ttl later. It does not if the
// backlog exists and repl-backlog-ttl is 0. BGSAVE never changes the history.
func TestRealBackups(t *testing.T) {
	c := newClinic(t, 1) // skips the test without redis-server, and redis-cli comes with redis-server
	c.provision()
	server := c.servers[0].Client()
	about := func(field string) string { return node.ParseInfo(server.Info(t.Context()).Val())[field] }
	dump := func() {
		t.Helper()
		if out, err := exec.Command("redis-cli", "-p", fmt.Sprint(portOf(c.servers[0].Addr())), "--rdb", filepath.Join(t.TempDir(), "rdb")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		testutil.Await(t, "redis-cli has left", func() bool { return about("connected_slaves") == "0" })
	}

	saved := about("rdb_last_save_time") + about("rdb_saves")
	c.do(0, "BGSAVE")
	testutil.Await(t, "saved", func() bool {
		return about("rdb_bgsave_in_progress") == "0" && about("rdb_last_save_time")+about("rdb_saves") != saved
	})
	wantFindings(t, c.diagnose(c.clients()))

	before := about("master_replid")
	dump()
	if now := about("master_replid"); now == before {
		t.Error("the history is the same")
	}
	d := c.diagnose(c.clients())
	wantFindings(t, d, found{"warning", "quarantined", 0})
	wantAdvice(t, d, "as redis-cli --rdb does, too")

	before = about("master_replid")
	c.do(0, "CONFIG", "SET", "repl-backlog-ttl", "1")
	testutil.Await(t, "another history", func() bool { return about("master_replid") != before && about("repl_backlog_active") == "0" })
	dump()
	c.do(0, "CONFIG", "SET", "repl-backlog-ttl", "0")
	before = about("master_replid")
	c.provision()
	dump()
	if now := about("master_replid"); now != before {
		t.Error("the history has changed")
	}
	wantFindings(t, c.diagnose(c.clients()))
}

// Diagnose reports a server without persistence as a risk if the restart guard is off.
func TestRealPersistence(t *testing.T) {
	c := newClinic(t, 1)
	c.opts = []Option{quietly, unhurried}
	wantFindings(t, c.diagnose(c.clients()))

	c.do(0, "CONFIG", "SET", "appendonly", "no")
	d := c.diagnose(c.clients())
	wantFindings(t, d, found{"risk", "not_durable", 0})
	wantAdvice(t, d, "appendonly yes", "WithRestartGuard")
}
