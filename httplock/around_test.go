package httplock

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

// If a lease or a permit around Lock is lost, the client gets the whole refusal. Nothing is recorded.
func TestRefusalAfterALossAround(t *testing.T) {
	for name, around := range map[string]func(locker *core.Locker) func(context.Context, func(context.Context) error) error{
		"lease": func(locker *core.Locker) func(context.Context, func(context.Context) error) error {
			return func(ctx context.Context, f func(context.Context) error) error {
				return locker.Do(ctx, "around", f, core.MaxHold(5*time.Second))
			}
		},
		"permit": func(locker *core.Locker) func(context.Context, func(context.Context) error) error {
			permits := must(semaphore.New(locker, 2))
			return func(ctx context.Context, f func(context.Context) error) error {
				return permits.Do(ctx, "around", f, core.MaxHold(5*time.Second))
			}
		},
		"cause": func(*core.Locker) func(context.Context, func(context.Context) error) error {
			return func(ctx context.Context, f func(context.Context) error) error { // as a lease does that is not the innermost
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(5*time.Second, func() { cancel(fmt.Errorf("around: %w", core.ErrLost)) })
				return f(ctx)
			}
		},
	} {
		for _, lostBefore := range []bool{false, true} {
			bubbleOf(t, name, 1, func(w *world) { lossAround(w, around(w.holding()), lostBefore) })
		}
	}
}

func lossAround(w *world, around func(context.Context, func(context.Context) error) error, lostBefore bool) {
	m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
	runs := 0
	h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
		runs++
		io.WriteString(rw, "own")
		time.Sleep(10 * time.Second)
	})
	s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = around(r.Context(), func(ctx context.Context) error {
			if lostBefore {
				<-ctx.Done()
			}
			h.ServeHTTP(rw, r.WithContext(ctx))
			return nil
		})
	})))

	for _, protocol := range protocols {
		for _, key := range []string{"", "k" + protocol[5:]} {
			for range 2 {
				got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
				if got.err != nil || got.status != 503 || got.kind(w) == "" {
					w.Errorf("%s, key %q: %+v", protocol, key, got)
				}
				time.Sleep(time.Minute)
			}
		}
	}
	if lostBefore != (runs == 0) {
		w.Errorf("%d runs", runs)
	}
}

// A repetition gets the whole record, even if a lease around Lock is lost while it is sent.
func TestRepetitionDuringALossAround(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var around *core.Lease
		lose := func() {}
		locker := newReplica(w, w.nodes, core.MaxHold(time.Hour), core.WithObserver(core.Observer{Event: func(_ context.Context, e core.Event) {
			if e.Kind == EventReplayed {
				lose()
			}
		}})).Locker
		h := mux(middleware(w, locker, WithIdempotency(true, NoSender)), does(writes("own")))
		s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_ = locker.Do(r.Context(), "around", func(ctx context.Context) error {
				around, _ = core.FromContext(ctx)
				h.ServeHTTP(rw, r.WithContext(ctx))
				return nil
			})
		}))
		for _, protocol := range protocols {
			put := func() reply {
				defer time.Sleep(time.Minute)
				return s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", protocol[5:])
			}
			lose = func() {}
			put().ok(w, "own")
			lose = func() { around.Extend(1); <-around.Context().Done() }
			put().ok(w, "own")
		}
	})
}
