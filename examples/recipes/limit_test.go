package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func limitOf(t *testing.T, l *core.Locker, k int) *semaphore.Semaphore {
	t.Helper()
	s, err := semaphore.New(l, k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Ten replicas never make more than three calls at a time.
func TestThreeCallsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		var inside, most, made atomic.Int32
		var all sync.WaitGroup
		for range 10 {
			limit := limitOf(t, l.Replica().Locker, 3)
			for range 5 {
				all.Go(func() {
					err := callAPI(t.Context(), limit, func(context.Context) error {
						n := inside.Add(1)
						defer inside.Add(-1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						time.Sleep(50 * time.Millisecond)
						made.Add(1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if most.Load() != 3 || made.Load() != 50 {
			t.Errorf("%d calls, %d at a time", made.Load(), most.Load())
		}

		// Three calls that hang keep others out for five seconds.
		limit := limitOf(t, l.Locker, 3)
		for range 3 {
			if _, err := limit.Acquire(t.Context(), "payments-api"); err != nil {
				t.Fatal(err)
			}
		}
		err := callAPI(t.Context(), limitOf(t, l.Replica().Locker, 3), func(context.Context) error { return nil })
		if !errors.Is(err, errBusy) {
			t.Error(err)
		}
	})
}

// With a cooldown of a second, at most three calls begin in a second.
func TestThreeInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := limitOf(t, locktest.New(t).Locker, 3)
		var began []time.Time
		for range 10 {
			permit, err := limit.Acquire(t.Context(), "mails")
			if err != nil {
				t.Fatal(err)
			}
			began = append(began, time.Now())
			if err := permit.Release(t.Context(), core.Cooldown(time.Second)); err != nil {
				t.Error(err)
			}
		}
		for i := range began[3:] {
			if d := began[i+3].Sub(began[i]); d < time.Second {
				t.Errorf("four calls began within %v", d)
			}
		}
		if took := began[9].Sub(began[0]); took > 4*time.Second {
			t.Errorf("ten calls took %v", took)
		}
	})
}

// Each import runs once, and of one customer two at a time, with different slots.
func TestTwoImportsOfACustomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		var mu sync.Mutex
		var running, most []int
		ran := map[string]int{}
		var all sync.WaitGroup
		for i := range 12 {
			replica := l.Replica().Locker
			imports := limitOf(t, replica, 2)
			id := fmt.Sprint(i % 6) // each is asked for twice
			all.Go(func() {
				err := importOnce(t.Context(), replica, imports, "42", id, func(_ context.Context, _ string, slot int) error {
					mu.Lock()
					if slices.Contains(running, slot) {
						t.Errorf("table %d is used by two", slot)
					}
					running = append(running, slot)
					if len(running) > len(most) {
						most = slices.Clone(running)
					}
					ran[id]++
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					running = slices.DeleteFunc(running, func(s int) bool { return s == slot })
					return nil
				})
				if err != nil && !errors.Is(err, core.ErrDone) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for id, n := range ran {
			if n != 1 {
				t.Errorf("import %s ran %d times", id, n)
			}
		}
		if len(ran) != 6 || len(most) != 2 {
			t.Errorf("%d imports, %d at a time", len(ran), len(most))
		}
	})
}
