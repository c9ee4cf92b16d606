package core

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

func TestOptionFaults(t *testing.T) {
	t.Parallel()
	const n = 3
	for _, c := range []struct {
		name   string
		opts   []Option
		faults []string // nil: none
	}{
		{"none", nil, nil},
		{"nil option", []Option{nil, WithName("x"), nil}, []string{"2 options are nil"}},
		{"nil logger", []Option{WithLogger(nil)}, []string{"logger is nil"}},
		{"zero durations", []Option{WithTTL(0), WithMaxTTL(0), WithRenewEvery(0), WithNodeTimeout(0), WithRetention(0), WithRetryDelay(0, 0)},
			[]string{"TTL is 0s", "max TTL is 0s", "renewal period is 0s", "node timeout is 0s", "retention is 0s", "least retry delay is 0s"}},
		{"negative durations", []Option{WithTTL(-1), WithMaxTTL(-2), WithRenewEvery(-3), WithNodeTimeout(-4), WithRetention(-5), WithRetryDelay(-6, 0),
			WithClockWindow(-7), WithMaxWait(-8), WithMaxHold(-9), WithMinHold(-10), WithLockDelay(-11), WithReplicaLag(-12)},
			[]string{"TTL is -1ns", "max TTL is -2ns", "renewal period is -3ns", "node timeout is -4ns", "retention is -5ns", "least retry delay is -6ns",
				"clock window is -7ns", "max wait is -8ns", "max hold is -9ns", "min hold is -10ns", "lock delay is -11ns", "replica lag is -12ns"}},
		{"below Redis' resolution", []Option{WithTTL(999 * time.Microsecond)}, []string{"TTL is 999µs"}},
		{"drift negative", []Option{WithDrift(-0.01)}, []string{"drift is -0.01"}},
		{"drift all", []Option{WithDrift(1)}, []string{"drift is 1"}},
		{"drift not a number", []Option{WithDrift(math.NaN())}, []string{"drift is NaN"}},
		{"retry order", []Option{WithRetryDelay(2*time.Second, time.Second)}, []string{"retry delays are 2s to 1s"}},
		{"max TTL too long", []Option{WithMaxTTL(25 * time.Hour)}, []string{"max TTL is 25h"}},
		{"max TTL at its limit", []Option{WithMaxTTL(24 * time.Hour)}, nil},
		{"min hold too long", []Option{WithMinHold(25 * time.Hour)}, []string{"min hold is 25h"}},
		{"min hold at its limit", []Option{WithMinHold(24 * time.Hour)}, nil},
		{"result limit negative", []Option{WithResultLimit(-1)}, []string{"result limit is -1 bytes"}},
		{"result limit too large", []Option{WithResultLimit(64<<10 + 1)}, []string{"result limit is 65537 bytes"}},
		{"result limit at its ends", []Option{WithResultLimit(0), WithResultLimit(64 << 10)}, nil},
		{"prefix empty", []Option{WithKeyPrefix("")}, []string{`key prefix ""`}},
		{"prefix too long", []Option{WithKeyPrefix(strings.Repeat("p", 65))}, []string{"must have 1 to 64 bytes"}},
		{"prefix with an opening brace", []Option{WithKeyPrefix("a{b")}, []string{`key prefix "a{b"`}},
		{"prefix with a closing brace", []Option{WithKeyPrefix("a}b")}, []string{`key prefix "a}b"`}},
		{"lag without guard", []Option{WithRestartGuard(false), WithReplicaLag(time.Second)}, []string{"replica lag is set, but the restart guard is off"}},
		{"TTL over the max TTL", []Option{WithMaxTTL(9 * time.Second)}, []string{"TTL 10s plus lock delay 0s is more than the max TTL 9s"}},
		{"lock delay over the max TTL", []Option{WithMaxTTL(11 * time.Second), WithLockDelay(2 * time.Second)}, []string{"TTL 10s plus lock delay 2s is more than the max TTL 11s"}},
		{"TTL at the max TTL", []Option{WithMaxTTL(12 * time.Second), WithLockDelay(2 * time.Second)}, nil},
		{"window too wide", []Option{WithClockWindow(2501 * time.Millisecond)}, []string{"clock window 2.501s is more than a quarter of the TTL 10s"}},
		{"window as wide as can be", []Option{WithClockWindow(2500 * time.Millisecond), WithRenewEvery(time.Second), WithNodeTimeout(time.Second)}, nil},
		{"renewal longer than the TTL", []Option{WithRenewEvery(11 * time.Second)}, []string{"too little for a renewal every 11s"}},
		{"renewal longer than what is trusted", []Option{WithRenewEvery(7 * time.Second)}, []string{"too little for a renewal every 7s"}},
		{"TTL too short for the default window", []Option{WithTTL(2 * time.Second)}, []string{"the clock window takes 1.1s"}},
		{"fixed lease needs no renewal", []Option{WithRenewEvery(11 * time.Second), WithFixedLease()}, nil},
		{"fixed lease too short", []Option{WithNodeTimeout(8 * time.Second), WithFixedLease()}, []string{"which a node timeout of 8s uses up"}},
		{"nothing left of a short TTL", []Option{WithTTL(100 * time.Millisecond)}, []string{"of TTL 100ms only"}},
		{"relations together", []Option{WithMaxTTL(9 * time.Second), WithClockWindow(3 * time.Second), WithRenewEvery(11 * time.Second)},
			[]string{"max TTL 9s", "clock window 3s", "renewal every 11s"}},
	} {
		_, err := defaults().with(c.opts).policy(n)
		if (err == nil) != (c.faults == nil) {
			t.Errorf("%s: error %v", c.name, err)
			continue
		}
		for _, fault := range c.faults {
			if !strings.Contains(err.Error(), fault) {
				t.Errorf("%s: the error does not say %q:\n%v", c.name, fault, err)
			}
		}
	}
}

// One error names what is wrong with options and nodes alike.
func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	node := testutil.Embedded(t, 1)[0]
	client := node.Client()
	var typedNil *redis.Client
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	_, err := New([]redis.UniversalClient{client, nil, typedNil, client, ring},
		WithTTL(-1), nil, WithLogger(nil), WithKeyPrefix("{}"), WithDrift(2), WithResultLimit(-1), WithRetryDelay(2, 1))
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{"node 1: client is nil", "node 2: client is nil", "node 3: the same client as node 0", "node 4: a Ring",
		"TTL is -1ns", "1 options are nil", "logger is nil", `key prefix "{}"`, "drift is 2", "result limit is -1", "retry delays are 2ns to 1ns"} {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("the error does not say %q:\n%v", fault, err)
		}
	}
	if got := node.Calls()["INFO"]; got != 0 {
		t.Errorf("nodes were asked %d times although the options are wrong", got)
	}
	for _, nodes := range [][]redis.UniversalClient{nil, make([]redis.UniversalClient, 65)} {
		if _, err := New(nodes); err == nil || !strings.Contains(err.Error(), "must be 1 to 64") {
			t.Errorf("%d nodes: %v", len(nodes), err)
		}
	}
	if _, err := Open([]string{"redis://127.0.0.1:1", "http://x", "redis://127.0.0.1:2"}, WithTTL(0), nil); err == nil ||
		!strings.Contains(err.Error(), "node 1") || !strings.Contains(err.Error(), "TTL is 0s") || !strings.Contains(err.Error(), "options are nil") {
		t.Errorf("Open: %v", err)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                                       string
		n                                          int
		opts                                       []Option
		ttl, maxTTL, renew, timeout, window, valid time.Duration
		server, tombstone                          time.Duration
		guarded                                    bool
	}{
		{"one node", 1, nil, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 10e9, 3e9, false},
		{"two nodes", 2, nil, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 10e9, 3e9, false},
		{"three nodes", 3, nil, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 10e9, 3e9, true},
		{"three nodes, unguarded", 3, []Option{WithRestartGuard(false)}, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 10e9, 3e9, false},
		{"one node, guarded", 1, []Option{WithRestartGuard(true)}, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 10e9, 3e9, true},
		{"short TTL", 5, []Option{WithTTL(time.Second), WithClockWindow(100 * time.Millisecond)}, 1e9, 1e9, 1_000_000_000 / 3, 1e8, 1e8, 678e6, 1e9, 4e8, true},
		{"lock delay", 3, []Option{WithLockDelay(5 * time.Second)}, 10e9, 15e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 15e9, 3e9, true},
		{"no window", 3, []Option{WithClockWindow(0)}, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 0, 8998e6, 10e9, 40e9, true},
		{"as told", 3, []Option{WithMaxTTL(time.Minute), WithRenewEvery(time.Second), WithNodeTimeout(2 * time.Second), WithClockWindow(1e9)},
			10e9, 60e9, 1e9, 2e9, 1e9, 6798e6, 10e9, 6e9, true},
	} {
		p, err := defaults().with(c.opts).policy(c.n)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := [...]time.Duration{p.ttl, p.maxTTL, p.renewEvery, p.nodeTimeout, p.window, p.validity, p.server, p.tombstone}
		want := [...]time.Duration{c.ttl, c.maxTTL, c.renew, c.timeout, c.window, c.valid, c.server, c.tombstone}
		if got != want || p.guarded != c.guarded {
			t.Errorf("%s: %v guarded %v\nwant %v guarded %v", c.name, got, p.guarded, want, c.guarded)
		}
		for i, want := range []time.Duration{c.window, c.server, c.maxTTL, 0, idleFence + clockJump, slack} {
			if p.static[i] != want.Milliseconds() {
				t.Errorf("%s: static argument %d is %v, want %v", c.name, i, p.static[i], want)
			}
		}
	}
	p, _ := defaults().policy(1)
	if p.drift != 0.10 || p.retention != 24*time.Hour || p.resultLimit != 4096 || p.prefix != "lockkit:" || p.logger != slog.Default() ||
		p.retryMin != 50*time.Millisecond || p.retryMax != 250*time.Millisecond || p.minHold+p.maxHold+p.maxWait != 0 || p.fixed {
		t.Errorf("defaults are %+v", p.config)
	}
}

// What the Locker believes of the clock window and what scripts enforce must be the same: without a window
// tombstones have to last longer.
func TestWindowReachesScripts(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{0, 1, 500 * time.Microsecond, 999_999, time.Millisecond, 100 * time.Millisecond} {
		p, err := defaults().with([]Option{WithClockWindow(window)}).policy(1)
		if err == nil && (p.static[0].(int64) > 0) != (p.window > 0) {
			t.Errorf("window %v: scripts are told %vms", window, p.static[0])
		}
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		n       int
		base    []Option
		derived []Option
		fault   string // "": none
	}{
		{"nothing", 3, nil, nil, ""},
		{"shorter TTL", 3, nil, []Option{WithTTL(5 * time.Second)}, ""},
		{"longer TTL, guarded", 3, nil, []Option{WithTTL(11 * time.Second)}, "more than the max TTL 10s"},
		{"longer TTL within the max TTL", 3, []Option{WithMaxTTL(20 * time.Second)}, []Option{WithTTL(11 * time.Second)}, ""},
		{"longer TTL, unguarded", 1, nil, []Option{WithTTL(11 * time.Second)}, "more than the max TTL 10s"},
		{"prefix", 1, nil, []Option{WithKeyPrefix("other:")}, "belong to all that share the nodes"},
		{"same prefix", 1, nil, []Option{WithKeyPrefix("lockkit:")}, ""},
		{"guard off", 3, nil, []Option{WithRestartGuard(false)}, "belong to all that share the nodes"},
		{"guard on", 1, nil, []Option{WithRestartGuard(true)}, "belong to all that share the nodes"},
		{"max TTL", 3, nil, []Option{WithMaxTTL(20 * time.Second)}, "belong to all that share the nodes"},
		{"lag", 3, nil, []Option{WithReplicaLag(time.Second)}, "belong to all that share the nodes"},
		{"nil option", 1, nil, []Option{nil}, "options are nil"},
		{"other faults too", 3, nil, []Option{WithKeyPrefix("other:"), WithTTL(0)}, "TTL is 0s"},
		{"derived values follow the new TTL", 3, []Option{WithClockWindow(100 * time.Millisecond)}, []Option{WithTTL(time.Second)}, ""},
		{"clock window", 1, nil, []Option{WithClockWindow(100 * time.Millisecond)}, "belong to all that share the nodes"},
		{"same clock window", 3, nil, []Option{WithClockWindow(500 * time.Millisecond)}, ""},
		{"what was set stays set", 3, []Option{WithNodeTimeout(300 * time.Millisecond)}, []Option{WithTTL(5 * time.Second)}, ""},
	} {
		l, err := New(testutil.Clients(testutil.Embedded(t, c.n)), c.base...)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		defer l.Close(context.Background())
		before := l.p
		d, err := l.With(c.derived...)
		call, of := l.policy(c.derived)
		switch {
		case (of == nil) != (err == nil) || err != nil && of.Error() != err.Error():
			t.Errorf("%s: With says %v, a call %v", c.name, err, of)
		case of == nil:
			if call.static != d.p.static || call.validity != d.p.validity {
				t.Errorf("%s: policy %+v of a call\nwant %+v", c.name, call, d.p)
			}
		}
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || d != nil {
				t.Errorf("%s: error %v, want %q", c.name, err, c.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		// The reference is a Locker made afresh, with the max TTL of the nodes.
		opts := append(append([]Option{}, c.base...), c.derived...)
		opts = append(opts, WithMaxTTL(l.p.maxTTL))
		want, err := defaults().with(opts).policy(c.n)
		if err != nil {
			t.Fatal(err)
		}
		if d.e != l.e || d.p.static != want.static || d.p.validity != want.validity || d.p.nodeTimeout != want.nodeTimeout ||
			d.p.renewEvery != want.renewEvery || d.p.tombstone != want.tombstone || d.p.guarded != want.guarded {
			t.Errorf("%s: policy %+v\nwant %+v", c.name, d.p, want)
		}
		if l.p.static != before.static || l.p.ttl != before.ttl {
			t.Errorf("%s: With changed the Locker it derives from", c.name)
		}
	}
}
