package core

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests the checks of New. A lasting fault is an error. A passing fault is logged, and the node is examined
// again later. If a check is not possible, that is logged, too.

func TestLastingFaults(t *testing.T) {
	type prepare = func(*testutil.Node, *redis.Client)
	refuse := func(command, err string) prepare {
		return func(n *testutil.Node, _ *redis.Client) { n.Refuse(command, err) }
	}

	version := func(v string) prepare {
		return func(n *testutil.Node, _ *redis.Client) { n.SetVersion(v) }
	}

	type row struct {
		prepare prepare
		want    []string // none: New succeeds
	}
	bubbles(t, 3, map[string]row{
		"no password":    {refuse("INFO", "NOAUTH Authentication required."), []string{"NOAUTH", "user and password"}},
		"wrong password": {refuse("INFO", "WRONGPASS invalid username-password pair or user is disabled."), []string{"WRONGPASS", "user and password"}},
		"database":       {refuse("INFO", "ERR DB index is out of range"), []string{"out of range", "database"}},
		"INFO denied":    {refuse("INFO", "NOPERM this user has no permissions to run the 'info' command"), []string{"+info", "restart guard"}},
		"INFO renamed":   {refuse("INFO", "ERR unknown command 'INFO'"), []string{"+info", "restart guard"}},
		"right of a script, before Redis 7": {refuse("EVALSHA", "ERR Error running script (call to f_0123): @user_script:5: @user_script: 5: The user executing the script can't run this command or subcommand"),
			[]string{"lacks a right"}},
		"queues":                        {refuse("ZADD", "NOPERM this user has no permissions to run the 'zadd' command"), []string{"add +zadd to its ACL"}},
		"publish":                       {refuse("PUBLISH", "ERR ACL failure in script: No permissions to access one of the channels used as arguments"), []string{"add &lockkit:* to its ACL"}},
		"subscribe":                     {refuse("SUBSCRIBE", "NOPERM this user has no permissions to run the 'subscribe' command"), []string{"add +subscribe to its ACL"}},
		"channels":                      {refuse("SUBSCRIBE", "NOPERM No permissions to access a channel"), []string{"add &lockkit:* to its ACL"}},
		"Cluster behind a plain client": {refuse("EVALSHA", "MOVED 13907 10.0.0.1:6379"), []string{"ClusterClient"}},
		"several plain servers":         {refuse("INFO", "ERR This instance has cluster support disabled"), []string{"for each server"}},
		"no scripts":                    {refuse("EVALSHA", "ERR unknown command 'EVALSHA'"), []string{"does not know a command"}},
		"Sentinel": {func(_ *testutil.Node, c *redis.Client) {
			c.AddHook(rewriteInfo{line: "redis_mode:standalone", by: "redis_mode:sentinel"})
		}, []string{"Sentinel", "NewFailoverClient"}},
		"Redis 6.0":        {version("6.0.16"), []string{"Redis 6.0.16", "6.2.7"}},
		"Redis 6.2.6":      {version("6.2.6"), []string{"Redis 6.2.6", "6.2.7"}},
		"Redis 6.2.7":      {version("6.2.7"), nil},
		"Redis 7.0 RC":     {version("6.9.240"), nil},
		"Redis 10":         {version("10.0.0"), nil},
		"an unstable tree": {version("255.255.255"), nil},
		"Valkey":           {version("7.2.4"), nil},
	}, func(t *testing.T, w *world, c row) {
		clients := testutil.Clients(w.nodes)
		c.prepare(w.nodes[1], clients[1].(*redis.Client))

		var log logbook.Book
		l, err := New(clients, WithLogger(log.Logger()))
		if c.want != nil {
			wantInError(t, err, append(c.want, "node 1 (embedded-")...)
			if strings.Contains(err.Error(), "node 0") || strings.Contains(err.Error(), "node 2") {
				t.Errorf("nothing is wrong with nodes 0 and 2: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		log.Want(t, 0, "")
		l.Close(t.Context())
	})
}

// rewriteInfo replaces a line of INFO.
type rewriteInfo struct {
	coretest.CommandsOnly
	line, by string
}

func (h rewriteInfo) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "info" {
			if any, ok := cmd.(goredis.OnceAny); ok {
				cmd = any.Cmder
			}
			info := cmd.(interface {
				Val() string
				SetVal(string)
			})
			info.SetVal(strings.ReplaceAll(info.Val(), h.line, h.by))
		}
		return err
	}
}

// A server that answers INFO with nil has failed. It is not taken for a Sentinel that knows no primary.
func TestNilAtTheStart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		clients := testutil.Clients(w.nodes)
		clients[1].(*redis.Client).AddHook(nilInfo{})
		var log logbook.Book
		l := must(New(clients, WithLogger(log.Logger())))
		defer l.Close(over())
		log.Want(t, 1, "cannot be checked", "node=1 ", "redis: nil")
		log.Want(t, 0, "Sentinel")
	})
}

type nilInfo struct{ coretest.CommandsOnly }

func (nilInfo) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "info" {
			cmd.SetErr(redis.Nil)
			return redis.Nil
		}
		return next(ctx, cmd)
	}
}

// A passing fault does not keep a process from starting, even if no quorum is left. The check is made later, even if no
// caller asks for a lock.
func TestPassingFaults(t *testing.T) {
	for command, reply := range map[string]string{
		"INFO":    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"EVALSHA": "LOADING Redis is loading the dataset in memory",
		"EVAL":    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	} {
		bubbleNamed(t, strings.Fields(reply)[0], 3, func(t *testing.T, w *world) {
			for _, n := range w.nodes[1:] {
				n.Refuse(command, reply)
			}
			var log logbook.Book
			l := must(New(testutil.Clients(w.nodes), WithLogger(log.Logger())))
			defer l.Close(over())
			log.Want(t, 1, "level=WARN", "cannot be checked", "node=1 ", strings.Fields(reply)[0])
			log.Want(t, 1, "level=WARN", "cannot be checked", "node=2 ", strings.Fields(reply)[0])

			w.nodes[1].SetEvictionPolicy("allkeys-lru", 1<<20)
			time.Sleep(30 * time.Second)
			for _, n := range w.nodes[1:] {
				n.Refuse(command, "")
			}
			time.Sleep(node.RecheckEvery + time.Second)
			log.Want(t, 1, "level=ERROR", "unfit", "node=1 ", "allkeys-lru")
			log.Want(t, 0, "unfit", "node=2 ")
			if n := w.nodes[2].Calls()["INFO"]; n < 4 || n > 6 {
				t.Errorf("%d looks at a node that was busy for 30s", n)
			}
		})
	}
}

// A server that answers but cannot be examined is not examined again at each answer.
func TestExaminedInVain(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.nodes[0].OnRequest(func(args []string) testutil.Action {
			return testutil.Action{DropRequest: strings.EqualFold(args[0], "SUBSCRIBE")}
		})
		p := w.process()
		for range 5 {
			w.release(w.acquire(p, "k"))
			synctest.Wait()
		}
		if n := w.nodes[0].Calls()["INFO"]; n != 1 {
			t.Errorf("%d looks at a node that does not let anybody subscribe", n)
		}
	})
}

// The probe of New leaves no keys on the nodes.
func TestProbeWritesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.stranger(WithRestartGuard(false))
		for i, n := range w.nodes {
			if keys := n.Keys(); len(keys) > 0 {
				t.Errorf("node %d has %v", i, keys)
			}
		}
	})
}

// refused returns the error of Open for a server that must not be a node. New starts with a node that does not answer in
// time, as on a machine that stands still, so it is asked again then.
func refused(t *testing.T, url string, opts ...Option) (err error) {
	t.Helper()
	testutil.Await(t, "the server is examined, and refused", func() bool {
		var l *Locker
		l, err = Open([]string{url}, append(opts, unhurried, quietly)...)
		if err == nil {
			l.Close(over())
		}
		return err != nil
	})
	return err
}

func TestLastingFaultsOnRealServers(t *testing.T) { //nolint:tparallel // its cases share a server
	t.Parallel()
	s := testutil.NewServers(t, 2)
	for _, server := range s {
		succeeds(t, server.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	}

	unknown := serverWithTLS(t, nil)
	addr := s[0].Addr()
	for name, c := range map[string]struct{ url, want string }{
		"no password":    {"redis://" + addr, "user and password"},
		"wrong password": {"redis://:wrong@" + addr, "user and password"},
		"database 99":    {"redis://:secret@" + addr + "/99", "database"},
		"unknown CA":     {"rediss://" + unknown.Listener.Addr().String(), "CA"},
	} {
		t.Run(name, func(t *testing.T) {
			wantInError(t, refused(t, c.url), "node 0 (", c.want)
		})
	}

	both := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{addr, s[1].Addr()}, Password: "secret"})
	defer both.Close()
	_, err := New([]redis.UniversalClient{both}, unhurried, quietly)
	wantInError(t, err, "redis.Client for each server")
}

// New reports each right that is missing from the ACL of the manual. The subscription is not tried here.
func TestMissingRightsOnARealServer(t *testing.T) {
	t.Parallel()
	rules := manualsACL(t)
	server := testutil.NewServers(t, 1)[0]
	for i, rule := range rules {
		if !strings.ContainsAny(rule[:1], "+~&") || rule == "+subscribe" { // TestLastingFaults denies SUBSCRIBE
			continue
		}

		args := []any{"ACL", "SETUSER", "lockkit", "reset"}
		for _, r := range slices.Delete(slices.Clone(rules), i, i+1) {
			args = append(args, r)
		}
		for _, cmd := range [][]any{{"SCRIPT", "FLUSH"}, args} {
			if err := server.Client().Do(t.Context(), cmd...).Err(); err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
		}

		url := "redis://lockkit:secret@" + server.Addr()
		var log logbook.Book
		l, err := Open([]string{url}, WithRestartGuard(true), unhurried, WithLogger(log.Logger()))
		switch {
		case err != nil:
			wantInError(t, err, "node 0 (", "ACL")
		case rule[0] == '&' && log.Count("publish") == 1:
			l.Close(over()) // the Locker works without this right
		default:
			l.Close(over())
			t.Errorf("%s is not missed", rule)
		}
	}
}

// A TTL above a minute is logged once: the key of a holder that dies stays taken until the TTL ends.
func TestLongTTLIsTold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		for ttl, lines := range map[time.Duration]int{time.Minute: 0, time.Minute + 1: 1} {
			var log logbook.Book
			must(New(testutil.Clients(w.nodes), TTL(ttl), WithLogger(log.Logger()))).Close(t.Context())
			log.Want(t, lines, "TTL is above a minute")
		}
	})
}

// New accepts the server on PATH, unless it is older than 6.2.7. Then the error names the required version.
// `make servers` runs this test on other versions.
func TestServerVersion(t *testing.T) {
	t.Parallel()
	client := testutil.NewServers(t, 1)[0].Client()
	info, err := client.Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}

	found := regexp.MustCompile(`(?m)^redis_version:(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(info)
	if found == nil {
		t.Fatalf("no redis_version in %s", info)
	}

	var version int
	for _, part := range found[1:] {
		var n int
		fmt.Sscan(part, &n)
		version = version*1000 + n
	}

	locks, err := New([]redis.UniversalClient{client}, quietly)
	if err == nil {
		defer locks.Close(t.Context())
	}

	switch old := version < 6_002_007; {
	case old && (err == nil || !strings.Contains(err.Error(), "6.2.7")):
		t.Errorf("%s: %v, want an error that names 6.2.7", found[0], err)
	case !old && err != nil:
		t.Errorf("%s: %v", found[0], err)
	}
}
