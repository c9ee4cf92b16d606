package core

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValidity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ttl    time.Duration
		drift  float64
		window time.Duration
		want   time.Duration
	}{
		{10 * time.Second, 0.10, 500 * time.Millisecond, 7898 * time.Millisecond}, // 9s - 2ms - 1s - 100ms
		{10 * time.Second, 0.10, 0, 8998 * time.Millisecond},
		{10 * time.Second, 0, 0, 9998 * time.Millisecond},
		{10 * time.Second, 0, time.Second, 7798 * time.Millisecond},
		{time.Second, 0.10, 100 * time.Millisecond, 678 * time.Millisecond},
		{time.Hour, 0.10, 500 * time.Millisecond, 54*time.Minute - 1102*time.Millisecond},
		{2 * time.Millisecond, 0, 0, 0},
		{time.Millisecond, 0.10, 0, -1100 * time.Microsecond},
	} {
		if got := validity(c.ttl, c.drift, c.window); got != c.want {
			t.Errorf("validity(%v, %v, %v) = %v, want %v", c.ttl, c.drift, c.window, got, c.want)
		}
	}
}

func TestDerivedDurations(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct{ ttl, timeout, margin time.Duration }{
		{ms(200), ms(50), ms(50)},
		{ms(1000), ms(100), ms(50)},
		{ms(5000), ms(500), ms(100)},
		{ms(10_000), ms(1000), ms(200)},
		{ms(60_000), ms(1000), ms(1200)},
	} {
		if n, m := defaultNodeTimeout(c.ttl), cancelMargin(c.ttl); n != c.timeout || m != c.margin {
			t.Errorf("TTL %v: node timeout %v, margin %v; want %v, %v", c.ttl, n, m, c.timeout, c.margin)
		}
	}
	if got := tombstoneTTL(ms(500), ms(1000), ms(10_000)); got != ms(3000) {
		t.Errorf("tombstone with a window lives %v, want 3s", got)
	}
	if got := tombstoneTTL(0, ms(1000), ms(10_000)); got != ms(40_000) {
		t.Errorf("tombstone without a window lives %v, want 40s", got)
	}
}

// The documents name the shortest TTL of a clock window, and the widest window of a TTL. New accepts them, and refuses
// a window that is 1ms wider, and a TTL in the steps of its error (10ms) that is shorter.
func TestShortestTTLOfAWindow(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	accepts := func(ttl, window time.Duration) bool {
		_, err := newPolicy([]Option{TTL(ttl), WithClockWindow(window)}, 1)
		return err == nil
	}

	for _, c := range []struct{ ttl, window time.Duration }{
		{ms(1000), ms(188)},
		{ms(5000), ms(1014)},
		{ms(10_000), ms(2029)},
	} {
		if !accepts(c.ttl, c.window) {
			t.Errorf("TTL %v with a window of %v is refused", c.ttl, c.window)
		}
		if accepts(c.ttl, c.window+ms(1)) {
			t.Errorf("TTL %v with a window of %v is accepted", c.ttl, c.window+ms(1))
		}
	}
	if !accepts(ms(2470), defaultWindow) || accepts(ms(2460), defaultWindow) {
		t.Error("the shortest TTL with the default window is not 2.47s")
	}

	for file, says := range map[string]string{
		"option.go":             "the default needs a TTL of at least 2.47s, a TTL of 1s a window of at most 188ms",
		"doc.go":                "at least 2.47s with the default clock window",
		"../docs/operations.md": "The shortest TTL is 2.47 s with the default clock window, and for 1 s the window is at most 188 ms",
	} {
		text := strings.Join(strings.Fields(strings.ReplaceAll(string(must(os.ReadFile(file))), "//", "")), " ")
		if !strings.Contains(text, says) {
			t.Errorf("%s does not say %q", file, says)
		}
	}
}

// FuzzValidity tries the arithmetic, and the policy built on it, with arbitrary options. It checks that a lease is
// never trusted for longer than the nodes keep it, as long as the clocks are within the limits that the options set.
func FuzzValidity(f *testing.F) {
	for _, s := range []durations{
		{0.1, 10 * time.Second, 500 * time.Millisecond, time.Second, 1},
		{0, time.Second, 0, 50 * time.Millisecond, time.Second},
		{0.999999, 1 << 52, 1 << 50, 1, 1 << 51},
		{0.5, 1234567, 999_999, 1234, 1_000_001},
	} {
		if !s.accepted() {
			f.Errorf("the seed %+v is refused, and tests nothing", s)
		}
		f.Add(int64(s.ttl), s.drift, int64(s.window), int64(s.timeout), int64(s.more))
	}

	if _, err := (durations{0.1, 10 * time.Second, 500 * time.Millisecond, time.Second, 1}).policy(); err != nil {
		f.Errorf("the first seed is refused, and tests nothing: %v", err)
	}

	f.Fuzz(func(t *testing.T, ttl int64, drift float64, window, timeout, more int64) {
		s := durations{drift, time.Duration(ttl), time.Duration(window), time.Duration(timeout), time.Duration(more)}
		if !s.accepted() {
			t.Skip("not what options accept")
		}
		s.wantShorterThanTTL(t)
		p, err := s.policy()
		if err != nil {
			return
		}
		s.wantOutlivedByNodes(t, &p)
		wantTombstonesOutliveRequests(t, &p)
	})
}

// durations has the values of the options that FuzzValidity varies.
type durations struct {
	drift                      float64
	ttl, window, timeout, more time.Duration // more is added to the TTL to compare it with a longer one
}

// accepted reports whether options may accept the values. They are at most 2^53 ns, or 104 days, because a float64
// cannot hold all nanoseconds beyond that.
func (s durations) accepted() bool {
	const most = 1 << 53
	durations := []time.Duration{s.ttl, s.window, s.timeout, s.more}
	return s.drift >= 0 && s.drift < 1 && slices.Min(durations) >= 0 && slices.Max(durations) <= most
}

func (s durations) policy() (policy, error) {
	return newPolicy([]Option{TTL(s.ttl), withDrift(s.drift), WithClockWindow(s.window),
		withNodeTimeout(s.timeout)}, 3)
}

// wantShorterThanTTL checks that drift, window and margin all shorten a lease's validity.
func (s durations) wantShorterThanTTL(t *testing.T) {
	v, withoutWindow := validity(s.ttl, s.drift, s.window), validity(s.ttl, s.drift, 0)
	switch {
	case v > s.ttl-roundTrip:
		t.Fatalf("trusted for %v of %v", v, s.ttl)
	case validity(s.ttl+s.more, s.drift, s.window) < v:
		t.Fatalf("a longer TTL, by %v, is trusted for less: %v", s.more, v)
	case withoutWindow-v != 0 && s.window == 0, s.window > 0 && withoutWindow-v < 2*s.window:
		t.Fatalf("window %v subtracts %v", s.window, withoutWindow-v)
	}
}

// wantOutlivedByNodes checks that nodes keep a lease for longer than its holder trusts it, and that the trusted time is
// enough for a renewal.
func (s durations) wantOutlivedByNodes(t *testing.T, p *policy) {
	told := p.ttl.Truncate(time.Millisecond)

	// Both the node's clock at the grant and its clock now may differ from this one by a window, and this clock may run
	// slow while the node's runs true.
	if trusted := p.validity + time.Duration(s.drift*float64(s.ttl)) + 2*p.Window; trusted >= told {
		t.Fatalf("trusted for %v with drift and window, nodes keep it for %v", trusted, told)
	}
	if p.validity-p.margin <= p.nodeTimeout+p.renewEvery {
		t.Fatalf("of %v, less than one renewal can be trusted", p.validity)
	}
}

// wantTombstonesOutliveRequests checks that no request of an attempt is accepted after its tombstone has expired.
func wantTombstonesOutliveRequests(t *testing.T, p *policy) {
	if p.Window > p.MaxTTL/4 {
		t.Fatalf("window %v beyond a quarter of %v", p.Window, p.MaxTTL)
	}

	// The time in a request may be ahead of the node's clock by a window, and a node accepts it until a window after
	// it.
	if p.Window > 0 && p.tombstone <= 2*p.Window || p.tombstone.Milliseconds() < 1 {
		t.Fatalf("a tombstone lives %v, the window is %v", p.tombstone, p.Window)
	}
	if p.Window == 0 && p.tombstone < 4*p.MaxTTL {
		t.Fatalf("without a window a tombstone lives %v, the max TTL is %v", p.tombstone, p.MaxTTL)
	}
}
