package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/history"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func init() { logging.Disable() } // go-redis logs broken connections

// both runs a test outside and inside a bubble.
func both(t *testing.T, f func(t *testing.T)) {
	t.Run("real", f)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, f) })
}

func TestNew(t *testing.T) {
	both(t, func(t *testing.T) {
		l := locktest.New(t, core.TTL(time.Minute)) // a longer TTL makes the node timeout longer, for busy machines
		lease, err := l.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Replica().TryAcquire(t.Context(), "k"); !errors.Is(err, core.ErrHeld) {
			t.Errorf("another process: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNewOn(t *testing.T) {
	for _, n := range []int{1, 5} {
		l := locktest.NewOn(t, testutil.NewNodes(t, n), core.TTL(time.Minute))
		if err := l.TryDo(t.Context(), "k", func(context.Context) error { return nil }); err != nil || len(l.Links) != n {
			t.Errorf("%d nodes, %d links: %v", n, len(l.Links), err)
		}
	}
}

func TestReplicaHasTheOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := locktest.New(t, core.WithKeyPrefix("other:")).Replica(core.TTL(5 * time.Second)).Replica()
		if got := a.KeyPrefix(); got != "other:" {
			t.Errorf("prefix %q", got)
		}
		lease, err := a.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lease.ValidUntil()); left > 5*time.Second {
			t.Errorf("held for %v", left)
		}
	})
}

// The end of the test does not wait for faults to end.
func TestEndWithFaults(t *testing.T) {
	for name, fault := range map[string]func(l *locktest.Locker){
		"none":         func(*locktest.Locker) {},
		"cut":          func(l *locktest.Locker) { l.Link.Cut() },
		"killed":       func(l *locktest.Locker) { l.Link.Kill() },
		"partly cut":   func(l *locktest.Locker) { l.Links[0].Cut(); l.Links[1].Cut() },
		"nodes hang":   func(l *locktest.Locker) { l.Nodes[0].Hang(); l.Nodes[1].Hang() },
		"nodes down":   func(l *locktest.Locker) { l.Nodes[0].Down(); l.Nodes[1].Down() },
		"replies lost": func(l *locktest.Locker) { l.Link.Lose(1000) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				l := locktest.New(t, core.TTL(time.Minute))
				if _, err := l.TryAcquire(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				fault(l)
			})
		})
	}
}

// A partition of one process does not affect the other processes.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := locktest.New(t)
		b := a.Replica()
		lease, err := b.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		b.Links[0].Cut() // a minority
		time.Sleep(time.Minute)
		if err := lease.Lost(); err != nil {
			t.Errorf("lost with a quorum: %v", err)
		}

		b.Link.Cut()
		if err := a.Do(t.Context(), "k", func(context.Context) error { return lease.Lost() }); !errors.Is(err, core.ErrLost) {
			t.Errorf("the first holder, when the second has the key: %v", err)
		}

		b.Link.Restore()
		b.Links[0].Restore()
		if err := b.Do(t.Context(), "k", func(context.Context) error { return nil }); err != nil {
			t.Errorf("mended: %v", err)
		}

		waits := make(chan error, 1)
		held, err := a.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			waits <- b.Do(t.Context(), "k", func(context.Context) error { return nil })
		}()
		synctest.Wait()

		b.Link.Kill() // also ends the subscription of the waiting process
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := testutil.Receive(t, waits); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("a dead process: %v", err)
		}
	})
}

// A holder that loses its lease learns of it before another process has the key. Its later requests are refused.
func TestLose(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  []core.Option
		takes time.Duration
	}{
		"watchdog": {nil, 3700 * time.Millisecond}, // a renewal period
		"fixed":    {[]core.Option{core.MaxHold(7 * time.Second)}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lose(t, tc.opts, tc.takes) })
		})
	}
}

func lose(t *testing.T, opts []core.Option, takes time.Duration) {
	var h history.History
	a := locktest.New(t, append(opts, core.WithObserver(locktest.Record(&h, "a")))...)
	b := a.Replica(core.WithObserver(locktest.Record(&h, "b")))
	lease, err := a.TryAcquire(t.Context(), "k")
	check(t, "acquire", err, nil)
	next := make(chan *core.Lease, 1)
	go func() {
		got, err := b.Acquire(context.Background(), "k")
		check(t, "the one who waits", err, nil)
		next <- got
	}()

	began := time.Now()
	b.Lose(lease.Context())
	check(t, "lost", lease.Lost(), core.ErrLost)
	if took := time.Since(began); took > takes {
		t.Errorf("took %v", took)
	}

	got := testutil.Receive(t, next)
	if got.FencingToken() <= lease.FencingToken() {
		t.Errorf("token %d after %d", got.FencingToken(), lease.FencingToken())
	}
	if took := time.Since(began); took > 11*time.Second {
		t.Errorf("who waited got the key after %v", took)
	}

	check(t, "complete", lease.Complete(t.Context(), nil), core.ErrLost)
	check(t, "release", lease.Release(t.Context()), core.ErrLost)
	check(t, "release of the next", got.Release(t.Context()), nil)
	check(t, "history", h.Check(), nil)
}

func check(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// After Lose, another process can acquire the key at once.
func TestLoseFreesTheKey(t *testing.T) {
	both(t, func(t *testing.T) {
		l := locktest.New(t, core.TTL(time.Minute))
		err := l.Do(t.Context(), "k", func(ctx context.Context) error {
			l.Lose(ctx)
			return l.Replica().TryDo(context.Background(), "k", func(context.Context) error { return nil })
		})
		op, ok := errors.AsType[*core.OpError](err)
		if !ok || !errors.Is(err, core.ErrLost) || op.Reason != core.LossTaken || errors.Is(err, core.ErrHeld) {
			t.Error(err)
		}
	})
}

// A test may end as soon as its holder has lost the lease. The nodes last until Lose has freed the key.
func TestEndWaitsForLose(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			l := locktest.New(t)
			err := l.Do(t.Context(), "k", func(ctx context.Context) error {
				go l.Lose(ctx)
				<-ctx.Done()
				return nil
			})
			check(t, "the holder", err, core.ErrLost)
		})
	}
}

// Lose works whatever the nodes store or have forgotten, and even if they do not answer.
func TestLoseOnNodesWithFaults(t *testing.T) {
	for name, fault := range map[string]func(l *locktest.Locker){
		"one flushed":  func(l *locktest.Locker) { l.Nodes[1].Flush() },
		"one hangs":    func(l *locktest.Locker) { l.Nodes[1].Hang() },
		"all hang":     func(l *locktest.Locker) { hang(l.Nodes) },
		"cut":          func(l *locktest.Locker) { l.Link.Cut() },
		"between":      func(*locktest.Locker) { time.Sleep(3 * time.Second) },
		"during renew": func(l *locktest.Locker) { slow(l.Nodes); time.Sleep(3300 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locktest.New(t)
				lease, err := l.TryAcquire(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				fault(l)
				l.Lose(lease.Context())
			})
		})
	}
}

func hang(nodes []*testutil.Node) {
	for _, n := range nodes {
		n.Hang()
	}
}

func slow(nodes []*testutil.Node) {
	for _, n := range nodes {
		n.SlowReplies(100 * time.Millisecond)
	}
}

// A failing counts the failures of a test.
type failing struct {
	testing.TB
	errors int
}

func (f *failing) Errorf(string, ...any) { f.errors++ }

func TestLoseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		l := locktest.New(f)
		if l.Lose(t.Context()); f.errors != 1 {
			t.Errorf("%d errors without a lease", f.errors)
		}
		lease, err := l.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Millisecond, func() { lease.Release(context.Background()) })
		if l.Lose(lease.Context()); f.errors != 2 {
			t.Errorf("%d errors, when it was released", f.errors)
		}
	})
}
