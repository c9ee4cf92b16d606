package core

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// realLocker is a Locker on n redis-server processes, with stock clients.
func realLocker(tb testing.TB, n int, opts ...Option) *Locker {
	tb.Helper()
	var clients []redis.UniversalClient
	for _, s := range testutil.Redis(tb, n) {
		clients = append(clients, s.Client())
	}
	l, err := New(clients, append([]Option{quietly}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Provision(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return l
}

func lockAndUnlock(tb testing.TB, l *Locker, key string) {
	lease, err := l.Acquire(tb.Context(), key)
	if err != nil {
		tb.Fatal(err)
	}
	if err := lease.Release(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkLockUnlock is an uncontended lock and unlock on real servers on loopback.
func BenchmarkLockUnlock(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			l := realLocker(b, n)
			b.ReportAllocs()
			for b.Loop() {
				lockAndUnlock(b, l, "key")
			}
		})
	}
}

// BenchmarkLockUnlockParallel has many goroutines lock keys of their own.
func BenchmarkLockUnlockParallel(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			l := realLocker(b, n)
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				key := fmt.Sprintf("key-%p", pb)
				for pb.Next() {
					lockAndUnlock(b, l, key)
				}
			})
		})
	}
}

// BenchmarkRedisSetDel is what the same client takes for a bare SET NX PX and DEL: the floor for one node.
func BenchmarkRedisSetDel(b *testing.B) {
	client := testutil.Redis(b, 1)[0].Client()
	b.ReportAllocs()
	for b.Loop() {
		if err := client.SetNX(b.Context(), "key", "value", 10*time.Second).Err(); err != nil {
			b.Fatal(err)
		}
		if err := client.Del(b.Context(), "key").Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// The bars: memory does not depend on the machine, so a test may hold it.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for n, bar := range map[int]float64{1: 35, 5: 90} {
		l := realLocker(t, n)
		for range 200 { // scripts loaded, pools filled, maps grown
			lockAndUnlock(t, l, "key")
		}
		least := math.Inf(1) // a busy machine adds some: dials, timeouts
		for range 5 {
			least = min(least, testing.AllocsPerRun(200, func() { lockAndUnlock(t, l, "key") }))
		}
		if least > bar {
			t.Errorf("%d nodes: %.0f allocations for a lock and unlock, the bar is %.0f", n, least, bar)
		}
	}
}

// A lock and an unlock take one round trip each, with any number of nodes.
func TestOneRoundTrip(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, n, func(t *testing.T, w *world) {
				p := w.process()
				w.release(w.acquire(p, "warm"))
				for _, k := range p.links {
					k.set(fate{delay: 10 * time.Millisecond, replyDelay: 10 * time.Millisecond})
				}
				start := time.Now()
				lease := w.acquire(p, "key")
				locked := time.Since(start)
				w.release(lease)
				if locked != 20*time.Millisecond || time.Since(start) != 40*time.Millisecond {
					t.Errorf("lock %v, unlock %v, a round trip is 20ms", locked, time.Since(start)-locked)
				}
			})
		})
	}
}
