package core

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

func TestOptionFaults(t *testing.T) {
	t.Parallel()
	const n = 3
	for _, c := range []struct {
		name   string
		opts   []Option
		faults []string // nil if the options are valid
	}{
		{"none", nil, nil},
		{"nil option", []Option{nil, Name("x"), nil}, []string{"an option is nil"}},
		{"nil logger", []Option{WithLogger(nil)}, []string{"logger is nil"}},
		{"zero durations", []Option{TTL(0), WithMaxTTL(0), Retention(0)},
			[]string{"TTL is 0s", "max TTL is 0s", "retention is 0s"}},
		{"negative durations", []Option{TTL(-1), WithMaxTTL(-2), Retention(-5),
			WithClockWindow(-7), MaxWait(-8), MaxHold(-9), WithReplicaLag(-12)},
			[]string{"TTL is -1ns", "max TTL is -2ns", "retention is -5ns",
				"clock window is -7ns", "max wait is -8ns", "max hold is -9ns", "replica lag is -12ns"}},
		{"below Redis' resolution", []Option{TTL(999 * time.Microsecond)}, []string{"TTL is 999µs"}},
		{"max TTL too long", []Option{WithMaxTTL(25 * time.Hour)}, []string{"max TTL is 25h"}},
		{"max TTL at its limit", []Option{WithMaxTTL(24 * time.Hour)}, nil},
		{"prefix empty", []Option{WithKeyPrefix("")}, []string{`key prefix ""`}},
		{"prefix too long", []Option{WithKeyPrefix(strings.Repeat("p", 65))}, []string{"must have 1 to 64 bytes"}},
		{"prefix with an opening brace", []Option{WithKeyPrefix("a{b")}, []string{`key prefix "a{b"`}},
		{"prefix with a closing brace", []Option{WithKeyPrefix("a}b")}, []string{`key prefix "a}b"`}},
		{"lag without guard", []Option{WithRestartGuard(false), WithReplicaLag(time.Second)}, []string{"replica lag is set, but the restart guard is off"}},
		{"TTL over the max TTL", []Option{WithMaxTTL(9 * time.Second)}, []string{"TTL 10s is more than the max TTL 9s"}},
		{"TTL at the max TTL", []Option{WithMaxTTL(10 * time.Second)}, nil},
		{"window too wide", []Option{WithClockWindow(2501 * time.Millisecond)}, []string{"TTL 10s is too short for a clock window of 2.501s: it must be at least 11.9s"}},
		{"durations beyond all", []Option{TTL(math.MaxInt64), WithMaxTTL(math.MaxInt64), WithClockWindow(math.MaxInt64), WithReplicaLag(math.MaxInt64), Retention(math.MaxInt64)},
			[]string{"TTL is 2562047h", "max TTL is 2562047h", "clock window is 2562047h", "replica lag is 2562047h", "retention is 2562047h"}},
		{"a hold and a wait beyond all", []Option{MaxHold(math.MaxInt64), MaxWait(math.MaxInt64)}, nil},
		{"TTL too short for the default window", []Option{TTL(2 * time.Second)}, []string{"TTL 2s is too short for a clock window of 500ms: it must be at least"}},
		{"nothing left of a short TTL", []Option{TTL(100 * time.Millisecond)}, []string{"TTL 100ms is too short"}},
		{"relations together", []Option{WithMaxTTL(9 * time.Second), WithClockWindow(3 * time.Second)},
			[]string{"max TTL 9s", "clock window of 3s"}},
		{"relations beside what has nothing to do with them", []Option{TTL(time.Second), MaxWait(-1), WithKeyPrefix("")},
			[]string{"TTL 1s is too short for a clock window of 500ms", "max wait is -1ns", "key prefix"}},
	} {
		_, err := newPolicy(c.opts, n)
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

// The error of New names all faults of the options and of the list of nodes. No node is asked then.
func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	node := testutil.NewNodes(t, 1)[0]
	client := node.Client()
	var typedNil *redis.Client
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	_, err := New([]redis.UniversalClient{client, nil, typedNil, client, ring},
		TTL(-1), nil, WithLogger(nil), WithKeyPrefix("{}"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, fault := range []string{"nodes 1 and 2: client is nil", "node 3: the same client as node 0", "node 4: a Ring",
		"TTL is -1ns", "an option is nil", "logger is nil", `key prefix "{}"`} {
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

	if _, err := Open([]string{"redis://127.0.0.1:1", "http://x", "redis://127.0.0.1:2"}, TTL(0), nil); err == nil ||
		!strings.Contains(err.Error(), "node 1") || !strings.Contains(err.Error(), "TTL is 0s") || !strings.Contains(err.Error(), "an option is nil") {
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
		tombstone                                  time.Duration
		guarded                                    bool
	}{
		{"one node", 1, nil, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 3e9, false},
		{"two nodes", 2, nil, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 3e9, false},
		{"three nodes", 3, nil, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 3e9, true},
		{"three nodes, unguarded", 3, []Option{WithRestartGuard(false)}, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 3e9, false},
		{"one node, guarded", 1, []Option{WithRestartGuard(true)}, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 5e8, 7898e6, 3e9, true},
		{"short TTL", 5, []Option{TTL(time.Second), WithClockWindow(100 * time.Millisecond)}, 1e9, 1e9, 1_000_000_000 / 3, 1e8, 1e8, 678e6, 4e8, true},
		{"no window", 3, []Option{WithClockWindow(0)}, 10e9, 10e9, 10_000_000_000 / 3, 1e9, 0, 8998e6, 40e9, true},
		{"as told", 3, []Option{WithMaxTTL(time.Minute), withRenewEvery(time.Second), withNodeTimeout(2 * time.Second), WithClockWindow(1e9)},
			10e9, 60e9, 1e9, 2e9, 1e9, 6798e6, 6e9, true},
	} {
		p, err := newPolicy(c.opts, c.n)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := [...]time.Duration{p.ttl, p.MaxTTL, p.renewEvery, p.nodeTimeout, p.Window, p.validity, p.tombstone}
		want := [...]time.Duration{c.ttl, c.maxTTL, c.renew, c.timeout, c.window, c.valid, c.tombstone}
		if got != want || p.Guarded != c.guarded {
			t.Errorf("%s: %v guarded %v\nwant %v guarded %v", c.name, got, p.Guarded, want, c.guarded)
		}

		if p.ttlMillis != wire.MillisOf(c.ttl) || p.tombstoneMillis != wire.MillisOf(c.tombstone) {
			t.Errorf("%s: requests say a lease of %v and a tombstone of %v", c.name, p.ttlMillis, p.tombstoneMillis)
		}
	}

	p, _ := newPolicy(nil, 1)
	if p.drift != 0.10 || p.retention != 24*time.Hour || p.Prefix != "lockkit:" || defaults().Logger != slog.Default() ||
		p.retryMin != 50*time.Millisecond || p.retryMax != 250*time.Millisecond || p.maxHold+p.maxWait != 0 {
		t.Errorf("defaults are %+v", p)
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		n       int
		base    []Option
		derived []CallOption
		fault   string // "" if the options are valid
	}{
		{"nothing", 3, nil, nil, ""},
		{"shorter TTL", 3, nil, []CallOption{TTL(5 * time.Second)}, ""},
		{"longer TTL, guarded", 3, nil, []CallOption{TTL(11 * time.Second)}, "more than the max TTL 10s"},
		{"longer TTL within the max TTL", 3, []Option{WithMaxTTL(20 * time.Second)}, []CallOption{TTL(11 * time.Second)}, ""},
		{"longer TTL, unguarded", 1, nil, []CallOption{TTL(11 * time.Second)}, "more than the max TTL 10s"},
		{"nil option", 1, nil, []CallOption{nil}, "an option is nil"},
		{"every fault", 3, nil, []CallOption{MaxHold(-1), TTL(0)}, "TTL is 0s"},
		{"derived values follow the new TTL", 3, []Option{WithClockWindow(100 * time.Millisecond)}, []CallOption{TTL(time.Second)}, ""},
		{"what was set stays set", 3, []Option{withNodeTimeout(300 * time.Millisecond)}, []CallOption{TTL(5 * time.Second)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := must(New(testutil.Clients(testutil.NewNodes(t, c.n)), c.base...))
			defer l.Close(context.Background())

			before := l.p
			d, err := l.With(c.derived...)
			l.wantSameInACall(t, c.derived, d, err)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) || d != nil {
					t.Errorf("error %v, want %q", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := afresh(l, c.n, c.base, c.derived); d.e != l.e || !samePolicy(d.p, want) {
				t.Errorf("policy %+v\nwant %+v", d.p, want)
			}
			if l.p.ttlMillis != before.ttlMillis || l.p.ttl != before.ttl {
				t.Error("With changed the Locker it derives from")
			}
		})
	}
}

// wantSameInACall checks that options have the same effect in a call as in With, which has returned d and err.
func (l *Locker) wantSameInACall(t *testing.T, opts []CallOption, d *Locker, err error) {
	t.Helper()
	call, of := l.p.withCallOptions(opts)
	switch {
	case (of == nil) != (err == nil) || err != nil && of.Error() != err.Error():
		t.Errorf("With says %v, a call %v", err, of)
	case of == nil:
		if call.ttlMillis != d.p.ttlMillis || call.validity != d.p.validity {
			t.Errorf("policy %+v of a call\nwant %+v", call, d.p)
		}
	}
}

// afresh returns the policy of a new Locker with the options of l, the derived options, and the max TTL of l.
func afresh(l *Locker, n int, base []Option, derived []CallOption) policy {
	opts := append(slices.Clone(base), WithMaxTTL(l.p.MaxTTL))
	for _, o := range derived {
		opts = append(opts, o)
	}
	return must(newPolicy(opts, n))
}

func samePolicy(a, b policy) bool {
	return a.ttlMillis == b.ttlMillis && a.Window == b.Window && a.MaxTTL == b.MaxTTL && a.validity == b.validity && a.nodeTimeout == b.nodeTimeout &&
		a.renewEvery == b.renewEvery && a.tombstone == b.tombstone && a.Guarded == b.Guarded
}

// The options of a call hold only for that call.
func TestOptionsOfACall(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		holder, p := w.process(), w.process(WithObserver(o.observer()))
		lease := w.acquire(holder, "k")
		wait, name := MaxWait(3*time.Second), Name("job")
		run := func(context.Context) error { return nil }
		for what, call := range map[string]func() error{
			"Acquire": func() error { _, err := p.Acquire(t.Context(), "k", wait, name); return err },
			"Do":      func() error { return p.Do(t.Context(), "k", run, wait, name) },
			"Once":    func() error { return p.Once(t.Context(), "k", run, wait, name) },
		} {
			began := time.Now()
			wantErr(t, call(), ErrHeld)
			wantBetween(t, what, time.Since(began), 3*time.Second, 3*time.Second)
		}
		wantErr(t, p.TryDo(t.Context(), "k", run, name), ErrHeld)
		w.release(lease)

		short := must(p.TryAcquire(t.Context(), "k", TTL(4*time.Second), unrenewed, name))
		wantBetween(t, "left", short.remaining(), time.Second, 4*time.Second)
		got := w.await(holder, "k") // the short lease is not renewed
		wantErr(t, short.Lost(), ErrLost)
		w.release(got)

		lease = w.acquire(p, "k") // with the options of the Locker
		wantBetween(t, "left", lease.remaining(), 5*time.Second, p.p.ttl)
		w.release(lease)
		ops, _ := o.of(t, OpAcquire)
		for i, op := range ops {
			if want := "job"; (op.Name == want) != (i < len(ops)-1) {
				t.Errorf("operation %d has the name %q", i, op.Name)
			}
		}
	})
}
