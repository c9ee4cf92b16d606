package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// These tests check the order in which waiters get a key: first come, first served within a process, polling between
// processes.

// requests returns the number of scripts that the nodes have received.
func (w *world) requests() (n int) {
	for _, node := range w.nodes {
		n += node.Calls()["EVALSHA"] + node.Calls()["EVAL"]
	}
	return n
}

func TestLineOfAHundred(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		holder := w.acquire(p, "k")
		synctest.Wait() // the third node has answered, too
		before, attempts := w.requests(), p.counting(wire.OpAcquire)

		const waiters = 100
		var order []int // only the holder of the key appends
		var waiting sync.WaitGroup
		for i := range waiters {
			waiting.Go(func() {
				err := p.Do(t.Context(), "k", func(context.Context) error {
					order = append(order, i)
					synctest.Wait() // a lease that is over at once spares nodes that have not been asked yet
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // i is in line before i+1 comes
		}

		if n := w.requests() - before; n > 0 {
			t.Errorf("%d requests by those who wait", n)
		}

		start := time.Now()
		w.release(holder)
		waiting.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("handing the key on took %v besides the messages", d)
		}
		if len(order) != waiters || !slices.IsSorted(order) {
			t.Errorf("order of grants: %v", order)
		}

		synctest.Wait() // the slowest nodes have answered, too
		if n := attempts.Load(); n != 3*waiters {
			t.Errorf("%d requests, with one contender at a time it takes %d", n, 3*waiters)
		}
		if n := entries(p.e.localQueue, "queues").Len(); n > 0 {
			t.Errorf("%d lines are left", n)
		}
	})
}

// A local waiter waits for its key, not for the Locker.
func TestLinesAreApart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.acquire(p, "k")
		start := time.Now()
		w.release(w.acquire(p, "other"))
		if d := time.Since(start); d != 0 {
			t.Errorf("waited %v for a key that nobody has", d)
		}
	})
}

func TestTryAcquireOfAKeyHeldInThisProcess(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(unrenewed)
		w.acquire(p, "k")
		time.Sleep(3 * time.Second)
		before := w.requests()
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		if n := w.requests() - before; n > 0 {
			t.Errorf("%d requests to learn what is known", n)
		}
		if op, _ := errors.AsType[*OpError](err); op.RetryAfter != 7*time.Second {
			t.Errorf("retry after %v, the nodes free the key in 7s", op.RetryAfter)
		}
	})
}

func TestOneInTheMiddleLeaves(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		holder := w.acquire(p, "k")

		var got []string
		var waiting sync.WaitGroup
		middle, cancel := context.WithCancel(t.Context())
		for _, one := range []struct {
			name string
			ctx  context.Context
		}{{"first", t.Context()}, {"middle", middle}, {"last", t.Context()}} {
			waiting.Go(func() {
				lease, err := p.Acquire(one.ctx, "k")
				if err != nil {
					wantErr(t, err, context.Canceled)
					return
				}
				got = append(got, one.name)
				w.release(lease)
			})
			synctest.Wait()
		}

		start := time.Now()
		cancel()
		synctest.Wait()
		if n := p.inLine("k"); n != 2 {
			t.Errorf("%d are in line, want 2", n)
		}

		w.release(holder)
		waiting.Wait()
		if !slices.Equal(got, []string{"first", "last"}) || time.Since(start) != 0 {
			t.Errorf("granted to %q within %v", got, time.Since(start))
		}
	})
}

// If nodes have no queue, waiters of other processes poll, each at its own times.
func TestPollingWithJitter(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.acquire(w.process(), "k")
		w.withoutQueue(0, "k")
		least, most := 100*time.Millisecond, 300*time.Millisecond
		p := w.process(withRetryDelay(least, most))

		var asked []time.Time
		p.links[0].Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			if s == wire.OpAcquire {
				asked = append(asked, time.Now())
			}
			return coretest.Fate{}
		})

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := p.Acquire(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)

		synctest.Wait()

		var shortest, longest time.Duration
		for i := range asked[1:] {
			pause := asked[i+1].Sub(asked[i])
			wantBetween(t, fmt.Sprint("pause ", i), pause, least, most)
			longest = max(longest, pause)
			if i == 0 || pause < shortest {
				shortest = pause
			}
		}
		if longest-shortest < (most-least)/2 {
			t.Errorf("%d pauses of %v to %v: no jitter", len(asked)-1, shortest, longest)
		}
	})
}

// The key of a crashed holder is taken when its TTL is over, however long the pauses between polls are.
func TestPollingHeedsTheRemainingTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process(withRetryDelay(10*time.Millisecond, time.Hour))
		start := time.Now()
		w.acquire(holder, "k")
		holder.cut()
		lease := w.await(p, "k")
		wantBetween(t, "taken after", time.Since(start), 10*time.Second, 10*time.Second+20*time.Millisecond)
		w.release(lease)
	})
}

// In the last millisecond of a lease, the key is still held, with no time left.
func TestPollingInTheLastMillisecond(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(unrenewed), w.process(withRetryDelay(10*time.Millisecond, time.Hour))
		w.acquire(holder, "k")
		time.Sleep(10 * time.Second)
		start := time.Now()
		lease := w.await(p, "k")
		wantBetween(t, "taken after", time.Since(start), 1, 20*time.Millisecond)
		w.release(lease)
	})
}

func TestMaxWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(MaxWait(2*time.Second)), w.process()
		lease, err := p.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("the lease ended with the wait: %v", context.Cause(lease.Context()))
		}

		remote := w.acquire(other, "remote")
		for name, c := range map[string]struct {
			key  string
			want error
		}{"in this process": {"k", ErrHeld}, "in another": {"remote", ErrHeld}, "nodes out of reach": {"free", ErrUnavailable}} {
			if c.want == ErrUnavailable {
				w.release(lease)
				w.release(remote)
				p.refused()
			}

			start := time.Now()
			_, err = p.Acquire(t.Context(), c.key)
			wantErr(t, err, c.want)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: looks like the caller's deadline: %v", name, err)
			}
			wantBetween(t, name, time.Since(start), 2*time.Second, 2*time.Second)
			if c.want == ErrUnavailable {
				p.mend()
				time.Sleep(time.Minute)
				lease, remote = w.acquire(p, "k"), w.acquire(other, "remote")
			}
		}
	})
}

// RetryAfter is the time until the nodes free the key if its holder vanishes. It is the same for callers in this
// process and in others. It counts from the moment at which the error is returned.
func TestRetryAfterIsTheHoldersRest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(unrenewed), w.process(unrenewed)
		w.acquire(p, "k")
		free := time.Now().Add(10 * time.Second)
		time.Sleep(time.Second)

		for _, where := range []*process{other, p} {
			l, err := where.With(MaxWait(3 * time.Second))
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.Acquire(t.Context(), "k")
			wantErr(t, err, ErrHeld)
			op, _ := errors.AsType[*OpError](err)
			left := time.Until(free)
			wantBetween(t, "retry after", op.RetryAfter, left, left+10*time.Millisecond)
		}
	})
}

func TestNotReentrant(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		outer := w.acquire(p, "k")
		inner := w.awaitUnder(outer.Context(), p, "another key")
		for _, l := range []*Locker{p.Locker, must(p.With(Name("other")))} {
			for _, lease := range []*Lease{outer, inner} {
				wantHeldAtOnce(lease.Context(), t, l)
			}
		}

		w.release(inner)
		w.release(outer)
		_, err := p.TryAcquire(outer.Context(), "k")
		wantErr(t, err, context.Canceled)
		if errors.Is(err, ErrReleased) { // the outer lease ended with it, not the call
			t.Errorf("two errors at once: %v", err)
		}

		again, err := p.TryAcquire(context.WithoutCancel(outer.Context()), "k")
		if err != nil {
			t.Fatalf("after the release: %v", err)
		}
		w.release(again)
	})
}

// wantHeldAtOnce checks that every call for "k" under ctx is refused without a wait.
func wantHeldAtOnce(ctx context.Context, t *testing.T, l *Locker) {
	t.Helper()
	nothing := func(context.Context) error { return errors.New("fn was called") }
	for name, ask := range map[string]func() error{
		"Acquire":    func() error { _, err := l.Acquire(ctx, "k"); return err },
		"TryAcquire": func() error { _, err := l.TryAcquire(ctx, "k"); return err },
		"Do":         func() error { return l.Do(ctx, "k", nothing) },
		"TryDo":      func() error { return l.TryDo(ctx, "k", nothing) },
		"Once":       func() error { return l.Once(ctx, "k", nothing) },
	} {
		start := time.Now()
		if err := ask(); !errors.Is(err, ErrHeld) || time.Since(start) != 0 {
			t.Errorf("%s under the lease: %v, after %v", name, err, time.Since(start))
		}
	}
}

// Callers in line learn together that no quorum can be reached. Each waits for as long as it would alone, and not for
// all callers that give up before it.
func TestLineGivesUpOnNodesOutOfReach(t *testing.T) {
	bubbles(t, 3, map[string]func(*testutil.Node){
		"down": (*testutil.Node).Down, "hung": (*testutil.Node).Hang,
	}, func(t *testing.T, w *world, fault func(*testutil.Node)) {
		p := w.process()
		for _, n := range w.nodes {
			fault(n)
		}

		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				start := time.Now()
				_, err := p.Acquire(t.Context(), "k")
				wantErr(t, err, ErrUnavailable)
				rounds := 2*p.p.nodeTimeout + p.p.retryMax // the first, and one that begins just before the end
				wantBetween(t, "gave up after", time.Since(start), p.p.ttl, p.p.ttl+rounds)
				wantCauses(t, err, 2)
			})
			time.Sleep(100 * time.Millisecond)
		}
		waiting.Wait()

		for _, n := range w.nodes {
			n.Up()
		}
		w.release(w.await(p, "k"))
	})
}

// A caller may give up just after its turn has come, before it has an answer of its own. Its error then says that nodes
// are out of reach, as the caller before it found out, and does not say that the key is held.
func TestLineKeepsWhatIsKnown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			n.Hang()
		}

		// Some waits end within a round.
		for first := 2 * time.Second; first < 4*time.Second; first += 50 * time.Millisecond {
			var waiting sync.WaitGroup
			for _, wait := range []time.Duration{first, first + 200*time.Millisecond} {
				waiting.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), wait)
					defer cancel()
					_, err := p.Acquire(ctx, "k")
					wantErr(t, err, ErrUnavailable)
					wantErr(t, err, context.DeadlineExceeded)
				})
				synctest.Wait()
			}
			waiting.Wait()
		}

		for _, n := range w.nodes {
			n.Up()
		}
	})
}

// A waiter that has waited for longer than the max TTL keeps its place.
func TestPlaceOfALongWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, early, late := w.process(), w.process(), w.process()
		lease := w.acquire(holder, "k")

		first := acquiring(early.Locker, t.Context(), "k")
		synctest.Wait()
		time.Sleep(2 * early.p.MaxTTL)
		second := acquiring(late.Locker, t.Context(), "k")
		synctest.Wait()
		time.Sleep(3 * time.Second)
		w.release(lease)

		select {
		case got := <-first:
			w.release(got.lease)
			w.release(testutil.Receive(t, second).lease)
		case got := <-second:
			t.Error("who came later was first")
			w.release(got.lease)
			w.release(testutil.Receive(t, first).lease)
		}
	})
}
