package core

import (
	"slices"
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

// FuzzValidity tries the arithmetic and the policy built on it with any options: a lease is never trusted for
// longer than the nodes keep it, whatever the clocks do that the options allow for.
func FuzzValidity(f *testing.F) {
	// Beyond 2^53ns a float64 does not hold nanoseconds: no TTL lasts for a hundred days.
	const most = 1 << 53
	accepted := func(drift float64, durations ...int64) bool {
		return drift >= 0 && drift < 1 && slices.Min(durations) >= 0 && slices.Max(durations) <= most
	}
	for _, seed := range []struct {
		drift                             float64
		ttl, window, timeout, delay, more int64
	}{
		{0.1, int64(10 * time.Second), int64(500 * time.Millisecond), int64(time.Second), 0, 1},
		{0, int64(time.Second), 0, int64(50 * time.Millisecond), int64(time.Minute), int64(time.Second)},
		{0.999999, 1 << 52, 1 << 50, 1, 1 << 40, 1 << 51},
		{0.5, 1234567, 999_999, 1234, 5, 1_000_001},
	} {
		if !accepted(seed.drift, seed.ttl, seed.window, seed.timeout, seed.delay, seed.more) {
			f.Errorf("the seed %+v is refused, and tests nothing", seed)
		}
		f.Add(seed.ttl, seed.drift, seed.window, seed.timeout, seed.delay, seed.more)
	}
	if _, err := defaults().with([]Option{TTL(10 * time.Second), withDrift(0.1), WithClockWindow(500 * time.Millisecond),
		withNodeTimeout(time.Second), LockDelay(0)}).policy(3); err != nil {
		f.Errorf("the first seed is refused, and tests nothing: %v", err)
	}
	f.Fuzz(func(t *testing.T, ttlNs int64, drift float64, windowNs, timeoutNs, delayNs, moreNs int64) {
		if !accepted(drift, ttlNs, windowNs, timeoutNs, delayNs, moreNs) {
			t.Skip("not what options accept")
		}
		ttl, window, timeout := time.Duration(ttlNs), time.Duration(windowNs), time.Duration(timeoutNs)
		delay, more := time.Duration(delayNs), time.Duration(moreNs)
		v := validity(ttl, drift, window)
		switch {
		case v > ttl-roundTrip:
			t.Fatalf("trusted for %v of %v", v, ttl)
		case validity(ttl+more, drift, window) < v:
			t.Fatalf("a longer TTL, by %v, is trusted for less: %v", more, v)
		case validity(ttl, drift, 0)-v != 0 && window == 0, window > 0 && validity(ttl, drift, 0)-v < 2*window:
			t.Fatalf("window %v subtracts %v", window, validity(ttl, drift, 0)-v)
		}

		p, err := defaults().with([]Option{TTL(ttl), withDrift(drift), WithClockWindow(window),
			withNodeTimeout(timeout), LockDelay(delay)}).policy(3)
		if err != nil {
			return
		}
		told := time.Duration(p.static[1].(int64)) * time.Millisecond
		// Two clocks may differ by a window each; this one may run slow while the node's runs true.
		if trusted := p.validity + time.Duration(drift*float64(ttl)) + 2*p.window; trusted >= told {
			t.Fatalf("trusted for %v with drift and window, nodes keep it for %v", trusted, told)
		}
		if p.validity-p.margin <= p.nodeTimeout+p.renewEvery {
			t.Fatalf("of %v, less than one renewal can be trusted", p.validity)
		}
		if p.window > p.maxTTL/4 {
			t.Fatalf("window %v beyond a quarter of %v", p.window, p.maxTTL)
		}
		// A request may be as far ahead of a node's clock as the window, and be let in a window later still.
		if p.window > 0 && p.tombstone <= 2*p.window || p.tombstone.Milliseconds() < 1 {
			t.Fatalf("a tombstone lives %v, the window is %v", p.tombstone, p.window)
		}
		if p.window == 0 && p.tombstone < 4*p.maxTTL {
			t.Fatalf("without a window a tombstone lives %v, the max TTL is %v", p.tombstone, p.maxTTL)
		}
		for i, arg := range p.static {
			if arg.(int64) < 0 {
				t.Fatalf("static argument %d is %v", i, arg)
			}
		}
	})
}
