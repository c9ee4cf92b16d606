package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/history"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// report is the code under test: it must not go on without its lease.
func report(ctx context.Context, l *core.Locker) error {
	return l.Do(ctx, "report", func(ctx context.Context) error {
		started(ctx)
		select {
		case <-time.After(time.Hour): // the work
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// started lets a test act while the report runs.
var started = func(context.Context) {}

// A test of a handler that loses its lease. (runTest stands for go test.)
func Example() {
	runTest(func(t testing.TB) {
		l := locktest.New(t)
		started = func(ctx context.Context) { go l.Lose(ctx) }
		if err := report(t.Context(), l.Locker); !errors.Is(err, core.ErrLost) {
			t.Errorf("the report goes on without its lease: %v", err)
		}
	})
	// Output: ok
}

func ExampleNew() {
	runTest(func(t testing.TB) {
		l := locktest.New(t)
		err := l.Do(t.Context(), "k", func(ctx context.Context) error {
			_, err := l.TryAcquire(context.Background(), "k")
			fmt.Println(errors.Is(err, core.ErrHeld))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	// Output:
	// true
	// ok
}

// A process that is partitioned from the nodes gets no lock, but other processes do.
func ExampleLocker_Replica() {
	runTest(func(t testing.TB) {
		a := locktest.New(t)
		b := a.Replica()
		b.Link.Cut()
		for _, l := range []*locktest.Locker{a, b} {
			err := l.TryDo(t.Context(), "k", func(context.Context) error { return nil })
			fmt.Println(errors.Is(err, core.ErrUnavailable))
		}
	})
	// Output:
	// false
	// true
	// ok
}

func ExampleLocker_Lose() {
	runTest(func(t testing.TB) {
		l := locktest.New(t)
		lease, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		l.Lose(lease.Context())
		fmt.Println(lease.Lost())
	})
	// Output:
	// lockkit: hold "k": lease lost (taken)
	// ok
}

func ExampleEvents() {
	runTest(func(t testing.TB) {
		var events locktest.Events
		l := locktest.New(t, core.WithObserver(events.Observer()))
		lease, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = l.Do(t.Context(), "k", func(context.Context) error { return nil })
		}()
		events.UntilRunning(t, core.OpAcquire, 1) // until Do waits
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		events.Until(t, "hold released", 2)
		fmt.Println(events.Count("acquire ok"), events.Count("acquire held"))
	})
	// Output:
	// 2 0
	// ok
}

// Several processes run at once. The history shows that no two of them held the key at the same time.
func ExampleRecord() {
	runTest(func(t testing.TB) {
		var h history.History
		l := locktest.New(t)
		done := make(chan error)
		for i := range 3 {
			process := l.Replica(core.WithObserver(locktest.Record(&h, fmt.Sprint("process ", i))))
			go func() {
				done <- process.Do(t.Context(), "k", func(context.Context) error { return nil })
			}()
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := h.Check(); err != nil {
			t.Error(err)
		}
	})
	// Output: ok
}
