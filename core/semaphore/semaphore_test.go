package semaphore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/core/internal/slot"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

const (
	key = "api"
	ttl = 10 * time.Second
	rtt = time.Millisecond
)

// bubble runs a test in virtual time, on n nodes that are a millisecond away.
func bubble(t *testing.T, n int, test func(t *testing.T, l *locktest.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.NewOn(t, testutil.NewNodes(t, n))
		for _, node := range l.Nodes {
			node.Slow(rtt)
		}
		test(t, l)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// permits acquires n permits for key, without waiting, in a process of its own.
func permits(t *testing.T, l *locktest.Locker, k, n int) (all []*Permit) {
	t.Helper()
	s := must(New(l.Replica().Locker, k))
	for range n {
		p, err := s.TryAcquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func release(t *testing.T, permits ...*Permit) {
	t.Helper()
	for _, p := range permits {
		if err := p.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// wantFree fails the test unless the key has n free slots of k, and frees them again.
func wantFree(t *testing.T, l *locktest.Locker, k, n int) {
	t.Helper()
	s := must(New(l.Replica().Locker, k))
	var all []*Permit
	for {
		p, err := s.TryAcquire(t.Context(), key)
		if errors.Is(err, core.ErrHeld) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) != n {
		t.Errorf("%d slots of %d are free, want %d", len(all), k, n)
	}
	release(t, all...)
}

// A result is what Acquire has returned, and when.
type result struct {
	permit *Permit
	err    error
	took   time.Duration
}

// acquire begins a call of Acquire in the background, and returns when it waits.
func acquire(ctx context.Context, s *Semaphore, opts ...core.CallOption) <-chan result {
	done := make(chan result, 1)
	go func() {
		began := time.Now()
		p, err := s.Acquire(ctx, key, opts...)
		done <- result{p, err, time.Since(began)}
	}()
	time.Sleep(4 * rtt)
	return done
}

// Of many callers in several processes, k hold the key at a time, each in a slot of its own, and all are served.
func TestAtMostK(t *testing.T) {
	for _, k := range []int{1, 3, 8} {
		bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
			var mu sync.Mutex
			live, most, served := map[int]bool{}, 0, 0
			var all sync.WaitGroup
			for range 4 {
				s := must(New(l.Replica().Locker, k))
				for range 2 * k {
					all.Go(func() {
						err := s.Do(t.Context(), key, func(ctx context.Context) error {
							p, _ := FromContext(ctx)
							mu.Lock()
							if live[p.Slot()] {
								t.Errorf("slot %d has two holders", p.Slot())
							}
							live[p.Slot()] = true
							most = max(most, len(live))
							mu.Unlock()
							time.Sleep(20 * time.Millisecond)
							mu.Lock()
							defer mu.Unlock()
							delete(live, p.Slot())
							served++
							return ctx.Err()
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
			}
			all.Wait()
			if most != k || served != 8*k {
				t.Errorf("k = %d: %d at a time, %d served", k, most, served)
			}
			wantFree(t, l, k, k)
		})
	}
}

// Slot 0 is the key: a semaphore of one is the plain lock, and a holder of the plain lock counts as one holder.
func TestSlotZeroIsTheKey(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		one := permits(t, l, 1, 1)
		if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, core.ErrHeld) {
			t.Fatalf("the lock beside a permit of one: %v", err)
		}
		release(t, one...)

		err := l.Do(t.Context(), key, func(context.Context) error {
			wantFree(t, l, 1, 0)
			wantFree(t, l, 4, 3)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Holders that know different k never exceed the largest.
func TestProcessesWithDifferentK(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		large := permits(t, l, 5, 5)
		wantFree(t, l, 1, 0)
		wantFree(t, l, 3, 0)
		wantFree(t, l, 7, 2)
		for _, p := range large {
			release(t, p)
			wantFree(t, l, 5, 1)
			want := 0
			if p.Slot() < 2 {
				want = 1
			}
			wantFree(t, l, 2, want)
			wantFree(t, l, 7, 3)
			large[0] = must(must(New(l.Locker, 5)).TryAcquire(t.Context(), key))
			defer release(t, large[0])
		}
	})
}

// requests counts the requests of a process by kind.
type requests struct {
	mu   sync.Mutex
	sent map[core.OpKind]int
}

func (r *requests) observer() core.Option {
	r.sent = map[core.OpKind]int{}
	return core.WithObserver(core.Observer{Node: func(_ context.Context, kind core.OpKind, _ core.NodeReply) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent[kind]++
	}})
}

// take returns the requests since the last call.
func (r *requests) take() map[core.OpKind]int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = map[core.OpKind]int{}
	return sent
}

// Without contention a permit costs what a lock costs, also when the callers of a process hold many: they begin with
// slots that the process gave back, and only after they are given back.
func TestFreeSlotCostsOneRequest(t *testing.T) {
	for _, x := range []struct{ k, callers int }{{1, 1}, {10, 1}, {10, 10}, {100, 8}} {
		bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
			var r requests
			s := must(New(l.Replica(r.observer()).Locker, x.k))
			var all sync.WaitGroup
			for caller := range x.callers {
				all.Go(func() {
					for range 20 {
						if err := s.Do(t.Context(), key, func(context.Context) error { time.Sleep(time.Duration(1+caller) * rtt); return nil }); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			sent, want := r.take(), 3*20*x.callers
			if sent[core.OpAcquire] != want || sent[core.OpRelease] != want {
				t.Errorf("k = %d, %d callers: %v, want %d of each", x.k, x.callers, sent, want)
			}
		})
	}
}

// A caller that comes while a permit is released does not ask for its slot.
func TestSlotIsReusedAfterItsRelease(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		for range 20 {
			var r requests
			s := must(New(l.Replica(r.observer()).Locker, 20))
			p := must(s.Acquire(t.Context(), key))
			r.take()
			done := make(chan error)
			go func() { done <- p.Release(t.Context()) }()
			synctest.Wait() // the release is on its way
			other := must(s.TryAcquire(t.Context(), key))
			if other.Slot() == p.Slot() || r.take()[core.OpAcquire] != 1 {
				t.Errorf("asked for slot %d during its release", p.Slot())
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			again := must(s.Acquire(t.Context(), key))
			if again.Slot() != p.Slot() {
				t.Errorf("slot %d after %d was given back", again.Slot(), p.Slot())
			}
			release(t, other, again)
		}
	})
}

// TryAcquire finds the last free slot. It returns ErrHeld only when each slot has refused it, and keeps nothing else.
func TestTryAsksEachSlot(t *testing.T) {
	for _, k := range []int{1, 2, 3, 20, 100} {
		bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
			held := permits(t, l, k, k)
			for i := range min(k, 10) {
				var r requests
				s := must(New(l.Replica(r.observer()).Locker, k))
				_, err := s.TryAcquire(t.Context(), key)
				op, _ := errors.AsType[*core.OpError](err)
				if op == nil || op.Err != core.ErrHeld || op.Key != key || op.RetryAfter <= 0 || op.Held != core.HeldByOther {
					t.Fatalf("k = %d: %v", k, err)
				}
				if n := r.take()[core.OpAcquire]; n != k {
					t.Errorf("k = %d: ErrHeld after %d requests", k, n)
				}

				release(t, held[i])
				held[i] = must(s.TryAcquire(t.Context(), key))
			}
			release(t, held...)
			if free := permits(t, l, k, 1); k > 1 {
				time.Sleep(time.Second)
				wantFree(t, l, k, k-len(free))
			}
		})
	}
}

// If several slots come free at the same moment, the call keeps one, and gives the others back at once.
func TestSecondGrantIsGivenBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
		for range 10 {
			held := permits(t, l, 4, 4)
			var r requests
			waiter := acquire(t.Context(), must(New(l.Replica(r.observer()).Locker, 4)))
			time.Sleep(time.Second) // it waits in all queues
			var all sync.WaitGroup
			for _, p := range held {
				all.Go(func() { release(t, p) })
			}
			all.Wait()
			got := <-waiter
			time.Sleep(10 * rtt)
			wantFree(t, l, 4, 3)
			release(t, must(got.permit, got.err))
			time.Sleep(time.Second)
		}
	})
}

// Observers are told of the slot that the caller gets, and not of a second one that is given back.
func TestObserversDoNotSeeASecondGrant(t *testing.T) {
	bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
		var told locktest.Events
		observed := l.Replica(core.WithObserver(told.Observer())).Locker
		op := must(slot.Begin(t.Context(), observed, key, false, []core.CallOption(nil)))
		acquireSlot := func(i int) any {
			lease, _, err := op.Acquire(t.Context(), slot.Name(key, i), false)
			return must(lease, err)
		}
		lease, second := acquireSlot(0), acquireSlot(1)

		op.GiveBack(second)
		err := op.Conclude(lease, nil)
		if err != nil {
			t.Fatal(err)
		}
		if holds, releases := told.Count("hold began"), told.Count("release began"); holds != 1 || releases != 0 {
			t.Errorf("the observer is told of %d holds and %d releases, want the one hold", holds, releases)
		}

		op.GiveBack(lease)
		wantFree(t, l, 4, 4)
	})
}

// The permit of a call that waited lives on when the other waits are cancelled.
func TestWinnerOutlivesTheOtherWaits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
		held := permits(t, l, 4, 4)
		waiter := acquire(t.Context(), must(New(l.Replica().Locker, 4)), core.MaxWait(time.Minute))
		time.Sleep(time.Second)
		release(t, held[2])
		got := <-waiter
		permit := must(got.permit, got.err)
		time.Sleep(10 * rtt)
		if left := queues(l, 4); left != nil {
			t.Errorf("still waits in the queues of slots %v", left)
		}
		time.Sleep(time.Minute)
		if err := permit.Context().Err(); err != nil {
			t.Errorf("the permit has ended: %v, %v", err, context.Cause(permit.Context()))
		}
		release(t, permit)
		release(t, held[0], held[1], held[3])
		wantFree(t, l, 4, 4)
	})
}

// queues returns the slots in whose queues calls wait, on the first node.
func queues(l *locktest.Locker, k int) (waited []int) {
	for i := range k {
		n, _ := l.Nodes[0].Exec("EXISTS", "lockkit:{0}w:"+slot.Name(key, i))
		if n == 1 || fmt.Sprint(n) == "1" {
			waited = append(waited, i)
		}
	}
	return waited
}

// A call waits in the queues of two slots, then of four, then of eight. When it has its permit, or gives up, it leaves
// them.
func TestQueuesOfAWait(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		const k = 12
		held := permits(t, l, k, k)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var r requests
		waiter := acquire(ctx, must(New(l.Replica(r.observer()).Locker, k)))
		for _, x := range []struct {
			until time.Duration
			want  int
		}{{40 * time.Millisecond, 2}, {70 * time.Millisecond, 4}, {10 * time.Second, 8}} {
			time.Sleep(x.until)
			if got := queues(l, k); len(got) != x.want {
				t.Errorf("waits in the queues of slots %v, want %d", got, x.want)
			}
		}

		// It tries the others too, but no more often.
		r.take()
		time.Sleep(10 * time.Second)
		if n := r.take()[core.OpAcquire]; n > 10*2*widest+widest {
			t.Errorf("%d requests in ten seconds", n)
		}

		cancel()
		got := <-waiter
		if !errors.Is(got.err, context.Canceled) || core.ClassOf(got.err) != core.ClassCancelled {
			t.Errorf("cancelled: %v", got.err)
		}
		time.Sleep(10 * rtt)
		if left := queues(l, k); left != nil {
			t.Errorf("left in the queues of slots %v", left)
		}
		release(t, held...)
	})
}

// A call that waits finds a free slot among many that are taken for long.
func TestWaitFindsTheFreeSlot(t *testing.T) {
	for range 5 {
		bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
			const k = 30
			permits(t, l, k, k-1)
			got := <-acquire(t.Context(), must(New(l.Replica().Locker, k)), core.MaxWait(time.Minute))
			if got.err != nil {
				t.Fatal(got.err)
			}
			if limit := (k/widest + 1) * time.Second; got.took > limit {
				t.Errorf("took %v, want %v at most", got.took, limit)
			}
			release(t, got.permit)
		})
	}
}

// A call keeps its place when it waits in more queues: it comes before a call that began later, but waited there first.
func TestPlaceInLaterQueues(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		for range 10 {
			const k = 3
			held := permits(t, l, k, k)
			early := acquire(t.Context(), must(New(l.Replica().Locker, k)))
			waits := queues(l, k)
			later := acquire(t.Context(), must(New(l.Replica().Locker, k)))
			third := 3 - waits[0] - waits[1]

			time.Sleep(firstPause - 2*rtt) // the first call waits in the third queue, too
			for i, p := range held {
				if p.Slot() == third {
					release(t, p)
					held = append(held[:i], held[i+1:]...)
					break
				}
			}
			time.Sleep(20 * rtt)
			select {
			case got := <-early:
				held = append(held, must(got.permit, got.err))
			default:
				t.Error("the later call was served first")
			}
			release(t, held...)
			for range 2 {
				select {
				case got := <-early:
					release(t, must(got.permit, got.err))
				case got := <-later:
					release(t, must(got.permit, got.err))
				case <-time.After(time.Minute):
				}
			}
		}
	})
}

// MaxWait, a deadline, the caller and Close end a whole wait, at once. The error says what was known, and nothing is left.
func TestEndOfAWait(t *testing.T) {
	const k, limit = 20, 1234 * time.Millisecond
	for name, x := range map[string]struct {
		opts []core.CallOption
		end  func(cancel context.CancelFunc, l *core.Locker)
		took time.Duration
		is   []error
		not  []error
	}{
		"max wait": {
			opts: []core.CallOption{core.MaxWait(limit)},
			is:   []error{core.ErrHeld}, not: []error{context.DeadlineExceeded},
		},
		"short max wait": {
			opts: []core.CallOption{core.MaxWait(3 * rtt)}, took: 3 * rtt,
			is: []error{core.ErrHeld}, not: []error{context.DeadlineExceeded},
		},
		"caller": {
			end: func(cancel context.CancelFunc, _ *core.Locker) { cancel() },
			is:  []error{context.Canceled}, not: []error{core.ErrHeld},
		},
		"detached": {
			opts: []core.CallOption{core.Detached(true)},
			end:  func(cancel context.CancelFunc, _ *core.Locker) { cancel() },
			is:   []error{context.Canceled}, not: []error{core.ErrHeld},
		},
		"close": {
			end: func(_ context.CancelFunc, l *core.Locker) { _ = l.Close(context.Background()) },
			is:  []error{core.ErrClosed}, not: []error{core.ErrHeld},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
				held := permits(t, l, k, k)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := l.Replica()
				if x.end != nil {
					time.AfterFunc(limit, func() { x.end(cancel, p.Locker) })
				}
				got := <-acquire(ctx, must(New(p.Locker, k)), x.opts...)
				if want := max(x.took, 0); x.took == 0 && got.took != limit || x.took != 0 && got.took != want {
					t.Errorf("ended after %v: %v", got.took, got.err)
				}
				wantError(t, got.err, x.is, x.not)
				release(t, held...)
				time.Sleep(10 * rtt)
				wantFree(t, l, k, k)
			})
		})
	}

	t.Run("deadline", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
			permits(t, l, k, k)
			s := must(New(l.Replica().Locker, k))
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got := <-acquire(ctx, s)
			if got.took != limit {
				t.Errorf("ended after %v", got.took)
			}
			wantError(t, got.err, []error{core.ErrHeld, context.DeadlineExceeded}, nil)
		})
	})

	t.Run("no quorum", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
			p := l.Replica()
			p.Link.Cut()
			began := time.Now()
			_, err := must(New(p.Locker, k)).TryAcquire(t.Context(), key)
			wantError(t, err, []error{core.ErrUnavailable}, []error{core.ErrHeld})
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("TryAcquire took %v", took)
			}
			got := <-acquire(t.Context(), must(New(p.Locker, k)))
			wantError(t, got.err, []error{core.ErrUnavailable}, []error{core.ErrHeld})
			if got.took < ttl || got.took > ttl+5*time.Second {
				t.Errorf("Acquire took %v", got.took)
			}
		})
	})

	for name, opts := range map[string][]core.CallOption{
		"no quorum until max wait": {core.MaxWait(ttl - time.Second)},
		"no quorum until deadline": nil,
	} {
		t.Run(name, func(t *testing.T) {
			for _, k := range []int{1, 3, 12} {
				bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
					permits(t, l, k, k)
					p := l.Replica()
					ctx, cancel := context.WithTimeout(t.Context(), ttl-time.Second)
					if opts != nil {
						ctx = t.Context()
					}
					defer cancel()
					waiter := acquire(ctx, must(New(p.Locker, k)), opts...)
					time.Sleep(limit) // it has found slots taken, and then cannot know
					p.Link.Cut()
					got := <-waiter
					wantError(t, got.err, []error{core.ErrUnavailable}, []error{core.ErrHeld})
				})
			}
		})
	}

	t.Run("no quorum any more", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
			held := permits(t, l, k, k)
			p := l.Replica()
			waiter := acquire(t.Context(), must(New(p.Locker, k)))
			time.Sleep(limit) // its first try has found a slot taken
			p.Link.Cut()
			got := <-waiter
			wantError(t, got.err, []error{core.ErrUnavailable}, []error{core.ErrHeld})
			release(t, held...)
		})
	})
}

// wantError fails the test unless err is an OpError on the key that matches all of is, and none of not.
func wantError(t *testing.T, err error, is, not []error) {
	t.Helper()
	op, _ := errors.AsType[*core.OpError](err)
	if op == nil || op.Key != key || op.Op != core.OpAcquire {
		t.Fatalf("%v", err)
	}
	for _, want := range is {
		if !errors.Is(err, want) {
			t.Errorf("%v does not match %v", err, want)
		}
	}
	for _, other := range not {
		if errors.Is(err, other) {
			t.Errorf("%v matches %v", err, other)
		}
	}
}

// A call under a permit or a lease for the key is refused at once. Code that is written for one holder does not see a
// permit.
func TestUnderOwnPermit(t *testing.T) {
	bubble(t, 1, func(t *testing.T, replicas *locktest.Locker) {
		l := must(replicas.With(core.MaxWait(time.Minute))) // a call that is not refused fails at last
		s := must(New(l, 3))
		wantRefused := func(err error) {
			t.Helper()
			op, _ := errors.AsType[*core.OpError](err)
			if op == nil || op.Err != core.ErrHeld || op.Held != core.HeldByCaller || op.Key != key {
				t.Errorf("%v", err)
			}
		}
		nothing := func(context.Context) error { t.Error("ran under the caller's own permit"); return nil }

		for range 3 { // in each slot
			p := must(s.Acquire(t.Context(), key))
			_, err := s.Acquire(p.Context(), key)
			wantRefused(err)
			wantRefused(s.TryDo(p.Context(), key, nothing, core.Reentrant(true)))
			_, err = l.Acquire(p.Context(), key)
			wantRefused(err)
			wantRefused(l.Do(p.Context(), key, nothing, core.Reentrant(true)))
			wantRefused(l.Once(p.Context(), key, nothing))
			if lease, ok := core.FromContext(p.Context()); ok {
				t.Errorf("core.FromContext returns the lease on %q", lease.Key())
			}
			if _, held := l.Holding(p.Context(), key); held {
				t.Error("Holding: a holder of a permit is not alone")
			}
			if got, ok := FromContext(p.Context()); !ok || got != p {
				t.Errorf("FromContext: %v, %v", got, ok)
			}
		}

		lease := must(l.Acquire(t.Context(), "outer"))
		err := s.Do(lease.Context(), "another", func(ctx context.Context) error {
			if got, _ := core.FromContext(ctx); got != lease {
				t.Error("core.FromContext does not return the lease around the permit")
			}
			if _, held := l.Holding(ctx, "outer"); !held {
				t.Error("Holding does not see the lease around the permit")
			}
			inner, _ := FromContext(ctx)
			return l.Do(ctx, "inner", func(ctx context.Context) error {
				if got, _ := FromContext(ctx); got != inner {
					t.Error("FromContext does not return the permit around the lease")
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		_, err = must(New(l, 2)).Acquire(must(replicas.Replica().Acquire(t.Context(), "k")).Context(), key, core.MaxWait(rtt))
		if op, _ := errors.AsType[*core.OpError](err); op == nil || op.Held == core.HeldByCaller {
			t.Errorf("under the lease of another Locker: %v", err)
		}
		lease = must(l.Acquire(t.Context(), "plain"))
		_, err = s.Acquire(lease.Context(), "plain")
		if op, _ := errors.AsType[*core.OpError](err); op == nil || op.Held != core.HeldByCaller {
			t.Errorf("under a lease on the key: %v", err)
		}
	})
}

// A key that is completed says so to a call that meets the record.
func TestCompletedKey(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		if err := l.Once(t.Context(), key, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		s := must(New(l.Locker, 1))
		_, err := s.TryAcquire(t.Context(), key)
		wantError(t, err, []error{core.ErrDone}, nil)
		_, err = s.Acquire(t.Context(), key)
		wantError(t, err, []error{core.ErrDone}, nil)

		held := permits(t, l.Replica(), 3, 0)
		many := must(New(l.Replica().Locker, 3))
		for len(held) < 2 {
			p, err := many.TryAcquire(t.Context(), key)
			if err == nil {
				held = append(held, p)
			} else {
				wantError(t, err, []error{core.ErrDone}, nil)
			}
		}
		_, err = many.Acquire(t.Context(), key)
		wantError(t, err, []error{core.ErrDone}, nil)
		release(t, held...)
	})
}

// Bad input is an error that says what is wrong.
func TestBadInput(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		invalid := func(err error, texts ...string) {
			t.Helper()
			if !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
				return
			}
			for _, text := range texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		}
		for _, k := range []int{-1, 0, 1025} {
			_, err := New(l.Locker, k)
			invalid(err, fmt.Sprint("k is ", k), "between 1 and 1024")
		}
		_, err := New(nil, 0)
		invalid(err, "the Locker", "k is 0")
		_, err = New(new(core.Locker), 1)
		invalid(err, "the Locker")

		s := must(New(l.Locker, MaxPermits))
		for _, long := range []string{strings.Repeat("k", MaxKey+1), strings.Repeat("k", 512)} {
			_, err = s.Acquire(t.Context(), long)
			invalid(err, "may have 494 bytes", fmt.Sprint("this one has ", len(long)))
		}
		_, err = s.Acquire(t.Context(), "")
		invalid(err)
		_, err = s.Acquire(nil, key) //nolint:staticcheck // the nil context is the point
		invalid(err)
		_, err = s.TryAcquire(t.Context(), key, core.TTL(-1), core.MaxWait(-1))
		invalid(err, "TTL", "max wait")
		if p, err := s.TryAcquire(t.Context(), key, core.MaxWait(time.Nanosecond)); err != nil {
			t.Errorf("MaxWait limits TryAcquire: %v", err)
		} else {
			release(t, p)
		}
		invalid(s.Do(t.Context(), key, nil))
		invalid(s.TryDo(t.Context(), key, nil))
		_, err = new(Semaphore).Acquire(t.Context(), key)
		invalid(err)
		_, err = (*Semaphore)(nil).TryAcquire(t.Context(), key)
		invalid(err)

		for _, p := range []*Permit{nil, {}} {
			invalid(p.Release(t.Context()))
			if p.Context().Err() == nil || p.Lost() != nil || p.Slot() != 0 || p.FencingToken() != 0 || !p.ValidUntil().IsZero() {
				t.Errorf("a permit that was not made by Acquire: %v", p)
			}
		}

		// The longest key suits the largest semaphore.
		var all []*Permit
		longest := strings.Repeat("k", MaxKey)
		for range 3 {
			all = append(all, must(s.Acquire(t.Context(), longest)))
		}
		invalid(all[0].Release(t.Context(), core.Cooldown(-1)), "cooldown")
		if all[0].Context().Err() != nil {
			t.Error("a release with a bad option has ended the permit")
		}
		release(t, all...)
	})
}

// The loss of a slot ends the context of its holder alone. The key has k holders again when it is over.
func TestLostSlot(t *testing.T) {
	bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
		held := permits(t, l, 3, 3)
		lost := held[1]
		if left := time.Until(lost.ValidUntil()); left <= ttl/2 || left > ttl {
			t.Errorf("a permit that was just granted ends in %v, with a TTL of %v", left, ttl)
		}
		waiter := acquire(t.Context(), must(New(l.Replica().Locker, 3)))
		if _, err := admin.Revoke(t.Context(), l.Locker, slot.Name(key, lost.Slot()), lost.FencingToken()); err != nil {
			t.Fatal(err)
		}
		testutil.Receive(t, lost.Context().Done())
		if time.Now().Before(lost.ValidUntil()) {
			t.Errorf("a lost permit is valid until %v", lost.ValidUntil())
		}
		if !errors.Is(context.Cause(lost.Context()), core.ErrLost) || !errors.Is(lost.Lost(), core.ErrLost) {
			t.Errorf("cause %v, lost %v", context.Cause(lost.Context()), lost.Lost())
		}
		if err := lost.Release(t.Context()); !errors.Is(err, core.ErrLost) {
			t.Errorf("release of a lost permit: %v", err)
		}
		got := <-waiter
		if p := must(got.permit, got.err); p.Slot() != lost.Slot() || p.FencingToken() <= lost.FencingToken() {
			t.Errorf("slot %d with token %d after slot %d with token %d", p.Slot(), p.FencingToken(), lost.Slot(), lost.FencingToken())
		}
		for _, p := range []*Permit{held[0], held[2]} {
			if p.Context().Err() != nil || p.Lost() != nil {
				t.Errorf("slot %d has ended: %v", p.Slot(), p.Lost())
			}
		}
	})
}

// Do reports a loss, and the error of its function.
func TestDoIsTold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		s := must(New(l.Locker, 3))
		mine := errors.New("mine")
		err := s.Do(t.Context(), key, func(ctx context.Context) error {
			p, _ := FromContext(ctx)
			if _, err := admin.Revoke(t.Context(), l.Locker, slot.Name(key, p.Slot()), p.FencingToken()); err != nil {
				t.Error(err)
			}
			testutil.Receive(t, ctx.Done())
			return mine
		})
		if !errors.Is(err, mine) || !errors.Is(err, core.ErrLost) {
			t.Errorf("%v", err)
		}

		func() {
			defer func() { _ = recover() }()
			_ = s.TryDo(t.Context(), key, func(context.Context) error { panic("fn") })
		}()
		time.Sleep(ttl)
		wantFree(t, l, 3, 3)
	})
}

// The slot of a process that dies is missing for the TTL.
func TestDeadHolder(t *testing.T) {
	bubble(t, 3, func(t *testing.T, l *locktest.Locker) {
		dead := l.Replica()
		p := must(must(New(dead.Locker, 2)).Acquire(t.Context(), key))
		dead.Link.Kill()
		wantFree(t, l, 2, 1)
		other := permits(t, l, 2, 1)
		got := <-acquire(t.Context(), must(New(l.Locker, 2)))
		if must(got.permit, got.err).Slot() != p.Slot() || got.took > ttl+time.Second {
			t.Errorf("took %v", got.took)
		}
		if p.Context().Err() == nil {
			t.Error("the dead process still has its permit")
		}
		release(t, got.permit, other[0])
	})
}

// With a cooldown, at most k permits are granted in that time. A call that may not wait for a cooldown says so at once.
func TestCooldown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		const k = 12
		for _, p := range permits(t, l, k, k) {
			if err := p.Release(t.Context(), core.Cooldown(time.Minute)); err != nil {
				t.Error(err)
			}
		}
		s := must(New(l.Locker, k))
		got := <-acquire(t.Context(), s, core.MaxWait(time.Second))
		wantError(t, got.err, []error{core.ErrHeld}, nil)
		op, _ := errors.AsType[*core.OpError](got.err)
		if got.took >= time.Second || op.Held != core.HeldCooldown || op.RetryAfter < 50*time.Second {
			t.Errorf("after %v: %v, %v, retry after %v", got.took, got.err, op.Held, op.RetryAfter)
		}
		got = <-acquire(t.Context(), s)
		if must(got.permit, got.err); got.took < 55*time.Second || got.took > time.Minute {
			t.Errorf("granted after %v", got.took)
		}
	})
}

// Nothing is kept of permits whose holders never release them: their contexts have ended.
func TestPermitThatIsNeverReleased(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		const k = 5
		s, m := must(New(l.Locker, k)), slot.MemoryOf(l.Locker)
		ctx, cancel := context.WithCancel(t.Context())
		for range k {
			must(s.Acquire(ctx, key))
		}
		cancel()
		synctest.Wait()
		for range 10 { // callers that are left would make two of these share a slot
			seen := map[int]bool{}
			for range k {
				seen[m.EnterFirst(key, k)] = true
			}
			for i := range k {
				m.Leave(key, i, false)
			}
			if len(seen) != k {
				t.Fatalf("callers are left: new ones are in slots %v", seen)
			}
		}
	})
}

// Observers are told of one acquisition on the key, whatever it asked for, and of the hold and the release of the slot.
func TestObserver(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		var mu sync.Mutex
		var told []string
		observer := core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(op.Kind, " ", op.Key, " ", op.Name, " ", op.Try))
			return ctx, func(out core.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				class := core.ClassOf(out.Err)
				told = append(told, fmt.Sprint(op.Kind, " ended ", class, " ", out.Contended))
				granted := op.Kind == core.OpAcquire && out.Err == nil
				if op.Kind == core.OpAcquire && (out.Attempts == 0 || out.Nodes == nil) || granted && (out.Token == 0 || out.Margin <= 0) {
					t.Errorf("%+v", out)
				}
			}
		}}
		want := func(lines ...string) {
			t.Helper()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(told) != fmt.Sprint(lines) {
				t.Errorf("told %q, want %q", told, lines)
			}
			told = nil
		}

		s := must(New(l.Replica(core.WithObserver(observer), core.Name("calls")).Locker, 4))
		held := permits(t, l, 4, 4)
		waiter := acquire(t.Context(), s)
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for _, p := range held { // several are granted, and all but one given back
			all.Go(func() { release(t, p) })
		}
		all.Wait()
		got := <-waiter
		permit := must(got.permit, got.err)
		name := slot.Name(key, permit.Slot())
		want("acquire api calls false", "hold "+name+" calls false", "acquire ended none true")

		time.Sleep(3 * time.Second) // one renewal is due, after a third of the TTL
		want("renew "+name+" calls false", "renew ended none false")
		release(t, permit)
		want("hold ended invalid false", "release "+name+" calls false", "release ended none false")

		permits(t, l, 4, 4)
		if _, err := s.TryAcquire(t.Context(), key); !errors.Is(err, core.ErrHeld) {
			t.Error(err)
		}
		want("acquire api calls true", "acquire ended held true")
		if _, err := s.Acquire(t.Context(), key, core.MaxWait(time.Second)); !errors.Is(err, core.ErrHeld) {
			t.Error(err)
		}
		want("acquire api calls false", "acquire ended held true")
	})
}

// A panicking context panics in Err once it is armed.
type panickingContext struct {
	context.Context
	armed atomic.Bool
}

func (c *panickingContext) Err() error {
	if c.armed.Load() {
		panic("Err of the caller's context")
	}
	return c.Context.Err()
}

// A panic of the caller's context reaches the caller, also from a goroutine that asks for a slot. Nothing stays taken.
func TestPanicOfTheCallersContext(t *testing.T) {
	bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
		held := permits(t, l, 3, 3)
		ctx := &panickingContext{Context: t.Context()}
		time.AfterFunc(100*time.Millisecond, func() { ctx.armed.Store(true) })
		panicked := func() (v any) {
			defer func() { v = recover() }()
			_, err := must(New(l.Replica().Locker, 3)).Acquire(ctx, key, core.MaxWait(time.Second))
			t.Errorf("no panic, but %v", err)
			return nil
		}()
		if panicked == nil {
			t.Error("no panic")
		}
		release(t, held...)
		time.Sleep(time.Second)
		wantFree(t, l, 3, 3)
	})
}

// A panickingOnce panics in the call number at of its methods.
type panickingOnce struct {
	context.Context
	calls atomic.Int64
	at    int64
}

func (c *panickingOnce) count() {
	if c.calls.Add(1) == c.at {
		panic("a method of the caller's context")
	}
}

func (c *panickingOnce) Done() <-chan struct{}       { c.count(); return c.Context.Done() }
func (c *panickingOnce) Err() error                  { c.count(); return c.Context.Err() }
func (c *panickingOnce) Value(key any) any           { c.count(); return c.Context.Value(key) }
func (c *panickingOnce) Deadline() (time.Time, bool) { c.count(); return c.Context.Deadline() }

// Wherever the caller's context panics, also beside a grant, no slot stays taken for longer than a TTL, and Close does
// not wait for it.
func TestPanicAnywhere(t *testing.T) {
	const k = 4
	acquires := map[string]func(s *Semaphore, ctx context.Context) (*Permit, error){
		"Acquire":    func(s *Semaphore, ctx context.Context) (*Permit, error) { return s.Acquire(ctx, key) },
		"TryAcquire": func(s *Semaphore, ctx context.Context) (*Permit, error) { return s.TryAcquire(ctx, key) },
	}
	for name, acquire := range acquires {
		isPast := false
		for at := int64(1); !isPast && at < 200; at++ {
			bubble(t, 1, func(t *testing.T, l *locktest.Locker) {
				held := permits(t, l, k, k-1)
				if name == "Acquire" {
					held = append(held, permits(t, l, k, 1)...)
				}
				time.AfterFunc(200*time.Millisecond, func() {
					for _, p := range held {
						go release(t, p)
					}
				})

				p := l.Replica()
				ctx := &panickingOnce{Context: t.Context(), at: at}
				func() {
					defer func() { _ = recover() }()
					permit, err := acquire(must(New(p.Locker, k)), ctx)
					isPast = ctx.calls.Load() < at
					ctx.calls.Store(at) // the call is over
					if err == nil {
						release(t, permit)
					}
				}()

				time.Sleep(2 * ttl)
				wantFree(t, l, k, k)
				closeCtx, cancel := context.WithTimeout(t.Context(), ttl)
				defer cancel()
				if err := p.Close(closeCtx); err != nil {
					t.Errorf("%s, panic in call %d: %v", name, at, err)
				}
			})
		}
	}
}
