package otellock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil"
)

// A permit is measured as a lock is: one acquisition, however many slots were asked for, one hold and one release. The
// requests of a wait that are cancelled when another slot is granted are measured nowhere.

// permits returns a semaphore of 3 permits.
func permits(t *testing.T, locks *core.Locker) *semaphore.Semaphore {
	t.Helper()
	s, err := semaphore.New(locks, 3)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takeAll takes the permits of "k", and gives the first back after 2 s, if back is set.
func takeAll(t *testing.T, s *semaphore.Semaphore, back bool) (held []*semaphore.Permit) {
	t.Helper()
	for range 3 {
		permit, err := s.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, permit)
	}
	if back {
		time.AfterFunc(2*time.Second, func() { held[0].Release(t.Context()) })
	}
	return held
}

func TestOutcomesOfPermits(t *testing.T) {
	const (
		plainly  = "acquire.duration{contended=false,name=jobs,outcome=acquired} 1"
		released = "hold.duration{name=jobs,outcome=released} 1"
		release  = "operation.duration{name=jobs,operation=release,outcome=released} 1"
	)
	work := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		do   func(w *world, limit, others *semaphore.Semaphore)
		want []string // without renewals, and without levels, because those are 0
		span []string // name, outcome, error.type
	}{
		"free": {func(w *world, limit, _ *semaphore.Semaphore) { limit.Do(w.t.Context(), "k", work) },
			[]string{plainly, released, release}, nil},
		"a wait": {func(w *world, limit, others *semaphore.Semaphore) {
			takeAll(w.t, others, true)
			limit.Do(w.t.Context(), "k", work)
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=acquired} 1", released, release}, []string{"acquire acquired "}},
		"all permits come back at once": {func(w *world, limit, others *semaphore.Semaphore) {
			held := takeAll(w.t, others, false)
			time.AfterFunc(2*time.Second, func() {
				for _, permit := range held {
					go permit.Release(w.t.Context())
				}
			})
			limit.Do(w.t.Context(), "k", work) // it may be granted several, and keeps one
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=acquired} 1", released, release}, []string{"acquire acquired "}},
		"held": {func(w *world, limit, others *semaphore.Semaphore) {
			takeAll(w.t, others, false)
			limit.TryDo(w.t.Context(), "k", work)
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=held} 1"}, []string{"acquire held "}},
		"max wait": {func(w *world, limit, others *semaphore.Semaphore) {
			takeAll(w.t, others, false)
			limit.Do(w.t.Context(), "k", work, core.MaxWait(3*time.Second))
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=timeout} 1"}, []string{"acquire timeout "}},
		"deadline": {func(w *world, limit, others *semaphore.Semaphore) {
			takeAll(w.t, others, false)
			ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
			defer cancel()
			limit.Do(ctx, "k", work)
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=timeout} 1"}, []string{"acquire timeout "}},
		"cancelled while waiting": {func(w *world, limit, others *semaphore.Semaphore) {
			takeAll(w.t, others, false)
			ctx, cancel := context.WithCancelCause(w.t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(errors.New("the client hung up")) })
			limit.Do(ctx, "k", work)
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=canceled} 1"}, []string{"acquire canceled "}},
		"unavailable": {func(w *world, limit, _ *semaphore.Semaphore) {
			w.each((*testutil.Node).Down)
			limit.TryDo(w.t.Context(), "k", work)
		}, []string{"acquire.duration{contended=false,error.type=unavailable,name=jobs,outcome=unavailable} 1"}, []string{"acquire unavailable unavailable"}},
		"lost": {func(w *world, limit, _ *semaphore.Semaphore) {
			limit.Do(w.t.Context(), "k", func(ctx context.Context) error {
				w.each((*testutil.Node).Down)
				<-ctx.Done()
				return nil
			})
		}, []string{plainly, "hold.duration{error.type=expired,name=jobs,outcome=lost} 1", "losses{error.type=expired,name=jobs} 1",
			"operation.duration{error.type=expired,name=jobs,operation=release,outcome=lost} 1"}, []string{"hold lost expired", "release lost expired"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				c.do(w, permits(t, w.locks(w.observer())), permits(t, w.locks(core.Observer{})))
				time.Sleep(time.Minute) // lets background work end
				synctest.Wait()
				w.wantMeasured(c.want, c.span)
			})
		})
	}
}

// wantMeasured fails the test unless exactly these points and spans were made, besides renewals and levels of 0.
func (w *world) wantMeasured(want, spans []string) {
	w.t.Helper()
	want = append(slices.Clone(want), "waiters{name=jobs} 0")
	if slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, "hold.") }) {
		want = append(want, "leases{name=jobs} 0")
	}
	slices.Sort(want)
	got := slices.DeleteFunc(w.counted(operationMetrics...), func(s string) bool { return strings.Contains(s, "operation=renew") })
	if !slices.Equal(got, want) {
		w.t.Errorf("measured\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	if got := w.outcomes(); !slices.Equal(got, spans) {
		w.t.Errorf("spans %q, want %q", got, spans)
	}
}

// Twelve callers share three permits. Although they wait for several slots each, and some are granted two, there are as
// many acquisitions, holds and releases as callers, none of them a failure.
func TestManyCallersOfASemaphore(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := w.observer(WithSpanThreshold(time.Hour))
		var all sync.WaitGroup
		for range 4 {
			limit := permits(t, w.locks(o))
			for range 3 {
				all.Go(func() {
					for range 5 {
						err := limit.Do(t.Context(), "k", func(context.Context) error {
							time.Sleep(30 * time.Millisecond)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()

		points := w.points()
		acquired := points["acquire.duration{contended=false,name=jobs,outcome=acquired}"] + points["acquire.duration{contended=true,name=jobs,outcome=acquired}"]
		holds := points["hold.duration{name=jobs,outcome=released}"]
		releases := points["operation.duration{name=jobs,operation=release,outcome=released}"]
		if acquired != 60 || holds != 60 || releases != 60 {
			t.Errorf("%v acquired, %v held, %v released, want 60 each", acquired, holds, releases)
		}
		for name, n := range points {
			isFailure := strings.Contains(name, "error.type") || strings.Contains(name, "canceled") || strings.Contains(name, "timeout")
			isLevel := strings.HasPrefix(name, "waiters") || strings.HasPrefix(name, "leases")
			if (isFailure || isLevel) && n != 0 {
				t.Errorf("%s is %v", name, n)
			}
		}
	})
}

// A lost slot is one loss, under the name of its holder. The other holders go on.
func TestLossOfASlot(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		held := takeAll(t, permits(t, locks), false)
		if _, err := admin.Revoke(t.Context(), locks, held[1].SlotKey(), held[1].FencingToken()); err != nil {
			t.Fatal(err)
		}
		<-held[1].Context().Done()
		synctest.Wait()

		if got := w.counted("losses", "leases"); !slices.Equal(got, []string{"leases{name=jobs} 2", "losses{error.type=revoked,name=jobs} 1"}) {
			t.Errorf("measured %q", got)
		}
		for _, i := range []int{0, 2} {
			if err := held[i].Release(t.Context()); err != nil {
				t.Errorf("permit %d: %v", i, err)
			}
		}
	})
}

// The span of a wait links to a holder of a slot, as that of a lock links to the holder of its key.
func TestSpanOfAPermit(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := w.observer()
		limit, others := permits(t, w.locks(o)), permits(t, w.locks(o))
		_, holder := w.span("the holder")
		ctx := trace.ContextWithSpan(t.Context(), holder)
		var held []*semaphore.Permit
		for range 3 {
			permit, err := others.Acquire(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, permit)
		}
		time.AfterFunc(2*time.Second, func() { held[2].Release(t.Context()) })

		ctx, waiter := w.span("the waiter")
		permit, err := limit.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var spans []string
		for _, s := range w.ended() {
			if s.Parent().SpanID() != waiter.SpanContext().SpanID() {
				continue
			}
			spans = append(spans, s.Name())
			if attr(s, AttrName) != "jobs" || attr(s, AttrContended) != "true" || attr(s, AttrOutcome) != "acquired" {
				t.Errorf("attributes %v", s.Attributes())
			}
			checkLinks(t, s, linkBlockedBy, holder.SpanContext())
		}
		if !slices.Equal(spans, []string{"lockkit.acquire"}) {
			t.Errorf("spans %q, want one", spans)
		}
		for _, p := range append(held[:2], permit) {
			if err := p.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
