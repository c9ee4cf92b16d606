package testutil

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// once returns a client of n that sends every command exactly once.
func once(n *Node) *redis.Client {
	return n.ClientWith(func(o *redis.Options) {
		o.MaxRetries = -1
		o.DialerRetries = 1
	})
}

func infoField(t *testing.T, info, field string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + field + `:(.*)\r$`).FindStringSubmatch(info)
	if m == nil {
		t.Fatalf("INFO has no %s:\n%s", field, info)
	}
	return m[1]
}

func field(t *testing.T, n *Node, name string) string {
	t.Helper()
	info, err := n.Exec("INFO")
	if err != nil {
		t.Fatal(err)
	}
	return infoField(t, info.(string), name)
}

func mustExec(t *testing.T, n *Node, args ...any) any {
	t.Helper()
	reply, err := n.Exec(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// both runs a test outside and inside a synctest bubble.
func both(t *testing.T, f func(t *testing.T)) {
	t.Run("real", f)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, f) })
}

func TestEmbeddedServesStockClients(t *testing.T) {
	both(t, func(t *testing.T) {
		nodes := NewNodes(t, 3)
		for i, c := range Clients(nodes) {
			if err := c.Set(t.Context(), "k", i, 0).Err(); err != nil {
				t.Fatal(err)
			}
			got, err := c.Eval(t.Context(), "return redis.call('GET', KEYS[1])", []string{"k"}).Int()
			if err != nil || got != i {
				t.Fatalf("got %d, %v; want %d", got, err, i)
			}
			calls := nodes[i].Calls()
			if calls["SET"] != 1 || calls["EVAL"] != 1 || calls["GET"] != 0 {
				t.Errorf("calls %v; want one SET and one EVAL, and no GET of the script", calls)
			}
			if keys := nodes[i].Keys(); !slices.Equal(keys, []string{"k"}) {
				t.Errorf("keys %v", keys)
			}
		}
		if nodes[0].Name() == nodes[1].Name() {
			t.Errorf("two nodes are called %s", nodes[0].Name())
		}
	})
}

func TestScriptSeesClockAndReplicationInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		c := n.Client()
		script := redis.NewScript(`
			local now = redis.call('TIME')
			local info = redis.call('INFO', 'replication')
			redis.call('HSET', KEYS[1], 'value', ARGV[1], 'token', '7')
			redis.call('PEXPIRE', KEYS[1], 1500)
			local pair = redis.call('HMGET', KEYS[1], 'value', 'token')
			return {now[1], now[2], info, pair[1], pair[2], redis.call('EXISTS', KEYS[1])}`)
		reply, err := script.Run(t.Context(), c, []string{"lock"}, "me").Slice()
		if err != nil {
			t.Fatal(err)
		}

		now := time.Now()
		if reply[0] != intString(now.Unix()) || reply[1] != intString(int64(now.Nanosecond()/1000)) {
			t.Errorf("TIME is %v.%v; want the bubble's %v", reply[0], reply[1], now)
		}
		if got := infoField(t, reply[2].(string), "role"); got != "master" {
			t.Errorf("role %s", got)
		}
		if got := infoField(t, reply[2].(string), "master_replid"); len(got) != 40 {
			t.Errorf("master_replid %q", got)
		}
		if reply[3] != "me" || reply[4] != "7" || reply[5] != int64(1) {
			t.Errorf("reply %v", reply[3:])
		}

		for _, step := range []struct {
			wait time.Duration
			want int64
		}{{1499 * time.Millisecond, 1}, {time.Millisecond, 0}} {
			time.Sleep(step.wait)
			if got := c.Exists(t.Context(), "lock").Val(); got != step.want {
				t.Errorf("after %v more: EXISTS %d, want %d", step.wait, got, step.want)
			}
		}
	})
}

func intString(i int64) string { return strconv.FormatInt(i, 10) }

func TestInfo(t *testing.T) {
	n := NewNodes(t, 1)[0]
	n.SetEvictionPolicy("allkeys-lru", 1024)
	n.SetReplica(true)
	c := n.Client()
	for _, tc := range []struct {
		sections []string
		has, not string
	}{
		{nil, "run_id:", ""},
		{nil, "maxmemory_policy:allkeys-lru", ""},
		{nil, "role:slave", "role:master"},
		{[]string{"server"}, "redis_version:7.0.15", "role"},
		{[]string{"SERVER"}, "tcp_port:", "maxmemory"},
		{[]string{"memory"}, "maxmemory:1024", "run_id"},
		{[]string{"replication"}, "master_replid:", "run_id"},
		{[]string{"nonsense"}, "", "run_id"},
	} {
		info, err := c.Info(t.Context(), tc.sections...).Result()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(info, tc.has) || tc.not != "" && strings.Contains(info, tc.not) {
			t.Errorf("INFO %v has to hold %q and not %q:\n%s", tc.sections, tc.has, tc.not, info)
		}
	}
	n.SetReplica(false)
	if got := field(t, n, "role"); got != "master" {
		t.Errorf("role %s after SetReplica(false)", got)
	}
}

func TestRestartsAndPromote(t *testing.T) {
	for _, tc := range []struct {
		name                                   string
		do                                     func(*Node)
		data, scripts, runID, replid, connects bool // whether they are kept
	}{
		{"RestartEmpty", (*Node).RestartEmpty, false, false, false, false, false},
		{"Restart", (*Node).Restart, true, false, false, false, false},
		{"Flush", (*Node).Flush, false, true, true, true, true},
		{"Promote", (*Node).Promote, true, true, true, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				n := NewNodes(t, 1)[0]
				conn, err := n.Dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				mustExec(t, n, "SET", "k", "v")
				sha := mustExec(t, n, "SCRIPT", "LOAD", "return 1")
				runID, replid := field(t, n, "run_id"), field(t, n, "master_replid")

				tc.do(n)

				kept := func(what string, got, want bool) {
					t.Helper()
					if got != want {
						t.Errorf("%s kept: %v, want %v", what, got, want)
					}
				}
				kept("data", len(n.Keys()) == 1, tc.data)
				kept("script", mustExec(t, n, "SCRIPT", "EXISTS", sha).([]any)[0] == 1, tc.scripts)
				kept("run_id", field(t, n, "run_id") == runID, tc.runID)
				kept("master_replid", field(t, n, "master_replid") == replid, tc.replid)
				_, err = conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
				kept("connection", err == nil, tc.connects)
				if err := n.Client().Ping(t.Context()).Err(); err != nil {
					t.Errorf("a new connection: %v", err)
				}
			})
		})
	}
}

func TestClientNoticesRestart(t *testing.T) {
	n := NewNodes(t, 1)[0]
	c := once(n)
	for range 3 {
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("a client used its broken idle connection: %v", err)
		}
		n.Restart()
	}
}

func TestPromoteMakesMaster(t *testing.T) {
	n := NewNodes(t, 1)[0]
	n.SetReplica(true)
	n.Promote()
	if got := field(t, n, "role"); got != "master" {
		t.Errorf("role %s", got)
	}
}

func TestStepClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNodes(t, 1)[0]
		skew := func() time.Duration {
			now, err := n.Client().Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			return time.Until(now).Round(time.Microsecond)
		}
		pttl := func() any { return mustExec(t, n, "PTTL", "k") }
		mustExec(t, n, "SET", "k", "v", "PX", "10000")

		n.StepClock(4 * time.Second)
		if skew() != 4*time.Second || pttl() != 6000 {
			t.Errorf("after a step of 4s: skew %v, PTTL %v; want 4s, 6000", skew(), pttl())
		}
		time.Sleep(time.Second)
		if skew() != 4*time.Second || pttl() != 5000 {
			t.Errorf("the clock has to run on: skew %v, PTTL %v; want 4s, 5000", skew(), pttl())
		}
		n.StepClock(-7 * time.Second)
		if skew() != -3*time.Second || pttl() != 12000 {
			t.Errorf("after a step back of 7s: skew %v, PTTL %v; want -3s, 12000", skew(), pttl())
		}
		n.StepClock(12 * time.Second)
		if pttl() != -2 {
			t.Errorf("a step over the expiry: PTTL %v, want -2", pttl())
		}
		n.StepClock(-12 * time.Second)
		if pttl() != -2 {
			t.Errorf("an expired key came back: PTTL %v", pttl())
		}
	})
}

func TestUnsupportedCommandsAreRefused(t *testing.T) {
	n := NewNodes(t, 1)[0]
	if err := n.Client().BLPop(t.Context(), 0, "k").Err(); err == nil || !strings.Contains(err.Error(), "do not serve") {
		t.Errorf("BLPOP: %v", err)
	}
}

func TestClosedNode(t *testing.T) {
	both(t, func(t *testing.T) {
		n := StartNode()
		before := n.Client()
		n.Hang()
		result := make(chan error, 1)
		go func() { result <- before.Ping(t.Context()).Err() }()
		Await(t, "the request has arrived", func() bool { return n.Calls()["HELLO"] > 0 })
		n.Close()
		n.Close()
		if err := <-result; err == nil {
			t.Error("a request pending at Close succeeded")
		}
		if err := n.Client().Ping(t.Context()).Err(); err == nil {
			t.Error("a client made after Close works")
		}
		if _, err := n.Dial(t.Context(), "", ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial: %v", err)
		}
		if _, err := n.Exec("PING"); err == nil {
			t.Error("Exec works")
		}
	})
}

func TestDialObeysContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewNodes(t, 1)[0].Dial(ctx, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v", err)
	}
}

// After a long outage, go-redis goes on to dial in a goroutine of its own, which a bubble must not end before.
func TestCloseAfterAnOutage(t *testing.T) {
	for _, poolSize := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			node := NewNodes(t, 1)[0]
			c := node.ClientWith(func(o *redis.Options) { o.PoolSize, o.MaxRetries = poolSize, -1 })
			node.Down()
			for range poolSize + 1 {
				if err := c.Ping(t.Context()).Err(); err == nil {
					t.Error("a node that is down answers")
				}
			}
			time.Sleep(time.Second / 2)
		})
	}
}
