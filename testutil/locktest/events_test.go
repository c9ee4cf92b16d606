package locktest_test

import (
	"context"
	"maps"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/history"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e locktest.Events
		l := locktest.New(t, core.WithObserver(e.Observer()), core.TTL(3*time.Second))
		lease, err := l.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.TryAcquire(t.Context(), "k")

		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = l.Replica().Acquire(ctx, "k") }()
		e.UntilRunning(t, core.OpAcquire, 1)
		cancel()
		e.UntilRunning(t, core.OpAcquire, 0)
		e.Until(t, "renew ok", 2)
		if n := e.Running(core.OpHold); n != 1 {
			t.Errorf("%d leases held", n)
		}

		if err := lease.Complete(t.Context(), nil); err != nil {
			t.Error(err)
		}
		_, _ = l.TryAcquire(t.Context(), "k")
		_ = l.Do(t.Context(), "lost", func(ctx context.Context) error { l.Lose(ctx); return nil })
		l.Event(t.Context(), core.Event{Source: "mine", Kind: "skipped"})
		synctest.Wait()

		got := e.Counts()
		maps.DeleteFunc(got, func(what string, _ int) bool { return what == "renew began" || what == "renew ok" })
		want := map[string]int{
			"acquire began": 5, "acquire ok": 2, "acquire held": 1, "acquire failed": 1, "acquire done": 1,
			"hold began": 2, "hold released": 1, "hold lost": 1, "renew lost": 1,
			"complete began": 1, "complete ok": 1, "release began": 1, "release lost": 1, "mine skipped": 1,
		}
		if !maps.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestEventsThatNeverCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fatal{TB: t}
		var e locktest.Events
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.Until(f, "hold began", 1)
		}()
		<-done
		if !f.was {
			t.Error("it came")
		}
	})
}

// Record shows the faults of a lock. Here two processes hold a key at once, because unguarded nodes have forgotten the
// first lease.
func TestRecordSeesOverlaps(t *testing.T) {
	for name, wrong := range map[string]bool{"guarded": false, "unguarded": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { forgotten(t, wrong) })
		})
	}
}

func forgotten(t *testing.T, wrong bool) {
	var h history.History
	a := locktest.New(t, core.WithRestartGuard(!wrong), core.WithObserver(locktest.Record(&h, "a")))
	b := a.Replica(core.WithObserver(locktest.Record(&h, "b")))
	first, err := a.TryAcquire(t.Context(), "k")
	check(t, "acquire", err, nil)
	for _, n := range a.Nodes {
		n.RestartEmpty()
	}
	second, err := b.Acquire(t.Context(), "k", core.MaxWait(time.Second))
	if (err == nil) != wrong {
		t.Fatalf("the second holder: %v", err)
	}
	_ = first.Release(t.Context())
	if second != nil {
		_ = second.Release(t.Context())
	}
	if err := h.Check(); (err != nil) != wrong {
		t.Errorf("the history: %v\n%s", err, h.Report())
	}
}

// Record records each kind of event, and nothing that did not happen.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history.History
		l := locktest.New(t, core.WithObserver(locktest.Record(&h, "a")))
		do := func(key string, f func(ctx context.Context) error) { _ = l.Do(t.Context(), key, f) }
		do("k", func(context.Context) error { time.Sleep(time.Second); return nil })
		do("k", func(ctx context.Context) error { l.Lose(ctx); return nil })
		for range 2 {
			_ = l.Once(t.Context(), "job", func(context.Context) error { time.Sleep(5 * time.Second); return nil })
		}
		synctest.Wait()
		want := "keys 2, attempts marked 4, grants 3, ended 3 (lost 1), still held 0\n"
		if got := h.Report(); got[:len(want)] != want {
			t.Errorf("report: %s", got)
		}
		if err := h.Check(); err != nil {
			t.Error(err)
		}
		t.Log(h.Report())
	})
}

// A fatal records whether a test was ended.
type fatal struct {
	testing.TB
	was bool
}

func (f *fatal) Fatalf(string, ...any) { f.was = true; runtime.Goexit() }
