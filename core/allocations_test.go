package core

import (
	"context"
	"encoding"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

func lockAndUnlock(tb testing.TB, l *Locker, key string) {
	lease, err := l.Acquire(tb.Context(), key)
	if err != nil {
		tb.Fatal(err)
	}
	if err := lease.Release(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// An answerer replies in the place of a server. So only the allocations of this package and of go-redis' commands
// count: there are no dials, no timeouts and no buffers.
type answerer struct {
	coretest.CommandsOnly
	memory string
}

func (a answerer) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	replies := map[wire.Op]string{
		wire.OpAcquire: "OK 1795000000000 1795000000000001 1795000060000 " + a.memory, wire.OpRenew: "OK 1795000000000 1795000060000 " + a.memory,
		wire.OpComplete: "OK 1795000000000", wire.OpRelease: "OK", wire.OpTouch: "OK 1795000000000 " + a.memory, wire.OpProbe: "OK",
	}
	return func(_ context.Context, cmd redis.Cmder) error {
		if asked, ok := cmd.(goredis.OnceAny); ok {
			if info, ok := asked.Cmder.(*redis.StringCmd); ok {
				info.SetVal("redis_version:8.0.0\nrole:master\nmaster_replid:0\nmaxmemory:0\nrun_id:" + a.memory)
			}
		}
		if cmd, ok := cmd.(goredis.Once); ok {
			cmd.SetVal(a.answers(cmd.Args(), replies))
		}
		return nil
	}
}

var granted any = time.Now().UnixMilli()

// answers returns the reply to a command. Its own allocations would count, so it decodes a command only if the command
// may contain something else than locks and their ends.
func (answerer) answers(args []any, replies map[wire.Op]string) any {
	if keys := args[2].(int); keys != 2 {
		if _, packed := args[len(args)-1].(encoding.BinaryMarshaler); packed {
			return granted
		}
	}
	all := coretest.RequestsOf(args)
	switch op := all[0].Op; {
	case op == wire.OpTouch:
		return []any{granted, int64(1), replies[op]}
	case op.Alone():
		return replies[op]
	}
	return granted
}

// answeredLocker returns a Locker on n nodes that answer at once.
func answeredLocker(tb testing.TB, n int, opts ...Option) *Locker {
	tb.Helper()
	var clients []redis.UniversalClient
	for i := range n {
		// A host name would be looked up, by a goroutine that all bubbles share.
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		c.AddHook(answerer{memory: fmt.Sprintf("%08d.5", i)})
		clients = append(clients, c)
	}
	// The TTL is so long that nothing is renewed or times out.
	l, err := New(clients, append([]Option{quietly, TTL(time.Minute)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		l.Close(context.Background())
		for _, c := range clients {
			c.Close()
		}
	})
	return l
}

// A lock and unlock stay within a fixed number of allocations. A test can check this, because the number does not
// depend on the machine.
func TestAllocations(t *testing.T) {
	race.SkipAllocations(t)
	synctest.Test(t, testAllocations)
}

func testAllocations(t *testing.T) {
	count := func(l *Locker, opts ...CallOption) float64 {
		run := func() {
			lease := must(l.Acquire(t.Context(), "key", opts...))
			synctest.Wait() // waits for the slower nodes, and until the goroutines of the lanes wait for the next batch
			succeeds(t, lease.Release(t.Context()))
			synctest.Wait()
		}
		least := math.Inf(1)
		for range 6 { // the first run grows maps and fills pools, and the scheduling of goroutines may cost one more
			least = min(least, testing.AllocsPerRun(200, run))
		}
		return least
	}

	for n, bar := range map[int]float64{1: 20, 3: 35, 5: 50} {
		l := answeredLocker(t, n)
		got := count(l)
		if got > bar {
			t.Errorf("%d nodes: %.0f allocations for a lock and unlock, the bar is %.0f", n, got, bar)
		} else {
			t.Logf("%d nodes: %.0f allocations", n, got)
		}
		if with := count(l, Name("job")); with > got+2 {
			t.Errorf("%d nodes: an option of the call costs %.0f allocations, the bar is 2", n, with-got)
		}
		events := Observer{Event: func(context.Context, Event) {}}
		if with := count(answeredLocker(t, n, WithObserver(events))); with > got {
			t.Errorf("%d nodes: an observer of events costs %.0f allocations for a lock and unlock, which it does not watch", n, with-got)
		}
	}
}

// A lock and an unlock take one round trip each, with any number of nodes.
func TestOneRoundTrip(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		bubbleNamed(t, fmt.Sprint(n), n, func(t *testing.T, w *world) {
			p := w.process()
			w.release(w.acquire(p, "warm"))
			for _, k := range p.links {
				k.Set(coretest.Fate{Delay: 10 * time.Millisecond, ReplyDelay: 10 * time.Millisecond})
			}
			start := time.Now()
			lease := w.acquire(p, "key")
			locked := time.Since(start)
			w.release(lease)
			if locked != 20*time.Millisecond || time.Since(start) != 40*time.Millisecond {
				t.Errorf("lock %v, unlock %v, a round trip is 20ms", locked, time.Since(start)-locked)
			}
		})
	}
}
