package otellock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// The metrics and spans of each way in which an operation can end.

var operationMetrics = []string{"acquire.duration", "hold.duration", "operation.duration", "losses", "leases", "waiters"}

func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestOutcomes(t *testing.T) {
	const plainly = "acquire.duration{contended=false,name=jobs,outcome=acquired} 1"
	for name, c := range map[string]struct {
		do   func(w *world, locks, others *core.Locker)
		want []string // without renewals, and without levels, because those are 0
		span []string // name, outcome, error.type
	}{
		"acquired and released": {func(w *world, locks, _ *core.Locker) { w.acquire(locks, "k").Release(w.t.Context()) },
			[]string{plainly, "hold.duration{name=jobs,outcome=released} 1", "operation.duration{name=jobs,operation=release,outcome=released} 1"}, nil},
		"completed": {func(w *world, locks, _ *core.Locker) { w.acquire(locks, "k").Complete(w.t.Context(), nil) },
			[]string{plainly, "operation.duration{name=jobs,operation=complete,outcome=completed} 1", "hold.duration{name=jobs,outcome=released} 1"}, nil},
		"panicked": {func(w *world, locks, _ *core.Locker) {
			defer func() { recover() }()
			locks.Do(w.t.Context(), "k", func(context.Context) error { panic("fn") })
		}, []string{plainly, "hold.duration{name=jobs,outcome=released} 1", "operation.duration{name=jobs,operation=release,outcome=released} 1"}, nil},
		"done": {func(w *world, locks, others *core.Locker) {
			w.acquire(others, "k").Complete(w.t.Context(), nil)
			locks.Acquire(w.t.Context(), "k")
		}, []string{"acquire.duration{contended=false,name=jobs,outcome=done} 1"}, nil},
		"held": {func(w *world, locks, others *core.Locker) {
			w.acquire(others, "k")
			locks.TryAcquire(w.t.Context(), "k")
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=held} 1"}, []string{"acquire held "}},
		"max wait": {func(w *world, locks, others *core.Locker) {
			w.acquire(others, "k")
			bounded, _ := locks.With(core.MaxWait(time.Second))
			bounded.Acquire(w.t.Context(), "k")
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=timeout} 1"}, []string{"acquire timeout "}},
		"deadline": {func(w *world, locks, others *core.Locker) {
			w.acquire(others, "k")
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			defer cancel()
			locks.Acquire(ctx, "k")
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=timeout} 1"}, []string{"acquire timeout "}},
		"cancelled while waiting": {func(w *world, locks, others *core.Locker) {
			w.acquire(others, "k")
			ctx, cancel := context.WithCancelCause(w.t.Context())
			time.AfterFunc(time.Second, func() { cancel(errors.New("the client hung up")) })
			locks.Acquire(ctx, "k")
		}, []string{"acquire.duration{contended=true,name=jobs,outcome=canceled} 1"}, []string{"acquire canceled "}},
		"cancelled before": {func(_ *world, locks, _ *core.Locker) { locks.Acquire(over(), "k") },
			[]string{"acquire.duration{contended=false,name=jobs,outcome=canceled} 1"}, nil},
		"unavailable": {func(w *world, locks, _ *core.Locker) {
			w.each((*testutil.Node).Down)
			locks.TryAcquire(w.t.Context(), "k")
		}, []string{"acquire.duration{contended=false,error.type=unavailable,name=jobs,outcome=unavailable} 1"}, []string{"acquire unavailable unavailable"}},
		"closed": {func(w *world, locks, _ *core.Locker) {
			locks.Close(w.t.Context())
			locks.Acquire(w.t.Context(), "k")
		}, []string{"acquire.duration{contended=false,name=jobs,outcome=closed} 1"}, nil},
		"lost": {func(w *world, locks, _ *core.Locker) {
			lease := w.acquire(locks, "k")
			w.each((*testutil.Node).Down)
			<-lease.Context().Done()
			lease.Release(w.t.Context())
		}, []string{plainly, "hold.duration{error.type=expired,name=jobs,outcome=lost} 1", "losses{error.type=expired,name=jobs} 1",
			"operation.duration{error.type=expired,name=jobs,operation=release,outcome=lost} 1"}, []string{"hold lost expired", "release lost expired"}},
		"taken": {func(w *world, locks, others *core.Locker) {
			lease := w.acquire(locks, "k")
			w.each((*testutil.Node).Flush)
			w.acquire(others, "k")
			<-lease.Context().Done()
		}, []string{plainly, "hold.duration{error.type=taken,name=jobs,outcome=lost} 1", "losses{error.type=taken,name=jobs} 1"}, []string{"hold lost taken", "renew lost taken"}},
		"found gone by its release": {func(w *world, locks, _ *core.Locker) {
			lease := w.acquire(locks, "k")
			w.each((*testutil.Node).Flush)
			lease.Release(w.t.Context())
			lease.Release(w.t.Context())
		}, []string{plainly, "hold.duration{name=jobs,outcome=released} 1", "losses{error.type=taken,name=jobs} 1", "operation.duration{error.type=taken,name=jobs,operation=release,outcome=lost} 2"}, []string{"release lost taken", "release lost taken"}},
		"completion refused": {func(w *world, locks, others *core.Locker) {
			lease := w.acquire(locks, "k")
			w.each((*testutil.Node).Flush)
			w.acquire(others, "k")
			lease.Complete(w.t.Context(), nil)
		}, []string{plainly, "operation.duration{error.type=taken,name=jobs,operation=complete,outcome=lost} 1", "hold.duration{name=jobs,outcome=released} 1"}, []string{"complete lost taken"}},
		"held for too long": {func(w *world, locks, _ *core.Locker) {
			bounded, _ := locks.With(core.MaxHold(5 * time.Second))
			<-w.acquire(bounded, "k").Context().Done()
		}, []string{plainly, "hold.duration{error.type=max_hold,name=jobs,outcome=lost} 1", "losses{error.type=max_hold,name=jobs} 1"}, []string{"hold lost max_hold"}},
		"abandoned": {func(w *world, locks, _ *core.Locker) {
			ctx, cancel := context.WithCancel(w.t.Context())
			locks.Acquire(ctx, "k")
			cancel()
		}, []string{plainly, "hold.duration{name=jobs,outcome=abandoned} 1"}, nil},
		"taken away": {func(w *world, locks, _ *core.Locker) {
			w.acquire(locks, "k")
			locks.Close(over())
		}, []string{plainly, "hold.duration{error.type=closed,name=jobs,outcome=lost} 1", "losses{error.type=closed,name=jobs} 1"}, []string{"hold lost closed"}},
		"release not confirmed": {func(w *world, locks, _ *core.Locker) {
			lease := w.acquire(locks, "k")
			w.each((*testutil.Node).Down)
			lease.Release(w.t.Context())
		}, []string{plainly, "hold.duration{name=jobs,outcome=released} 1", "operation.duration{error.type=unavailable,name=jobs,operation=release,outcome=unavailable} 1"}, []string{"release unavailable unavailable"}},
		"completion not confirmed": {func(w *world, locks, _ *core.Locker) {
			lease := w.acquire(locks, "k")
			w.each((*testutil.Node).Down)
			lease.Complete(over(), nil)
		}, []string{plainly, "operation.duration{error.type=unavailable,name=jobs,operation=complete,outcome=unavailable} 1", "hold.duration{name=jobs,outcome=released} 1"}, []string{"complete unavailable unavailable"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				c.do(w, w.locks(w.observer()), w.locks(core.Observer{}))
				time.Sleep(time.Minute) // lets background work end
				synctest.Wait()

				want := append(slices.Clone(c.want), "waiters{name=jobs} 0")
				if slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, "hold.") }) {
					want = append(want, "leases{name=jobs} 0")
				}
				slices.Sort(want)
				got := slices.DeleteFunc(w.counted(operationMetrics...), func(s string) bool { return strings.Contains(s, "operation=renew") })
				if !slices.Equal(got, want) {
					t.Errorf("measured\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
				}
				if spans := w.outcomes(); !slices.Equal(spans, c.span) {
					t.Errorf("spans %q, want %q", spans, c.span)
				}
			})
		})
	}
}

// outcomes returns the name, outcome and error type of each span, sorted. It leaves out renewals that failed.
func (g *gauge) outcomes() (lines []string) {
	for _, s := range g.ended() {
		failure := attr(s, AttrErrorType)
		line := strings.TrimPrefix(s.Name(), "lockkit.") + " " + attr(s, AttrOutcome) + " " + failure
		if line == "renew unavailable unavailable" {
			continue
		}
		lines = append(lines, line)
		if (s.Status().Code == codes.Error) != (failure != "") {
			g.t.Errorf("%s: status %v", line, s.Status())
		}
	}
	slices.Sort(lines)
	return lines
}

// An error that core does not have yet is counted as a failure. An unknown reason for a loss is passed on.
func TestUnknownOutcome(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpAcquire, Name: "jobs"})
	end(core.Outcome{Err: errors.New("news")})
	_, end = g.observer().Start(t.Context(), core.Op{Kind: core.OpRenew, Name: "jobs"})
	end(core.Outcome{Err: core.ErrLost, Reason: "another"})
	want := []string{"acquire.duration{contended=false,error.type=_OTHER,name=jobs,outcome=error} 1", "operation.duration{error.type=another,name=jobs,operation=renew,outcome=lost} 1"}
	if got := g.counted("acquire.duration", "operation.duration"); !slices.Equal(got, want) {
		t.Errorf("measured %q, want %q", got, want)
	}
}

// A call that is refused a key counts as contended, even if core does not say so, because alerts depend on it.
func TestRefusalIsContended(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpAcquire, Name: "jobs", Try: true})
	end(core.Outcome{Err: core.ErrHeld})
	want := []string{"acquire.duration{contended=true,name=jobs,outcome=held} 1"}
	if got := g.counted("acquire.duration"); !slices.Equal(got, want) {
		t.Errorf("measured %q, want %q", got, want)
	}
}

// A provider that is installed while an operation is in progress sees only the operation's end. Levels do not fall
// below 0 then. The test runs in a process of its own, because the global provider can be installed only once.
func TestProviderComesWhileWaiting(t *testing.T) {
	const own = "LOCKKIT_OWN_PROCESS"
	if os.Getenv(own) == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProviderComesWhileWaiting$", "-test.v")
		again.Env = append(os.Environ(), own+"=yes")
		said, err := again.CombinedOutput()
		if err != nil || !strings.Contains(string(said), "--- PASS: TestProviderComesWhileWaiting") {
			t.Errorf("%v:\n%s", err, said)
		}
		return
	}

	g := newGauge(t)
	o, err := New(WithTracerProvider(g.tracers)) // the global meter provider
	if err != nil {
		t.Fatal(err)
	}
	_, end := o.Start(t.Context(), core.Op{Kind: core.OpAcquire, Name: "jobs"})
	otel.SetMeterProvider(g.meters)
	end(core.Outcome{})
	if points := g.points(); points["waiters{name=jobs}"] != 0 || points["acquire.duration{contended=false,name=jobs,outcome=acquired}"] != 1 {
		t.Errorf("measured %v", points)
	}
}

// A renewal that begins too late has a margin of 0, because a histogram takes no values below 0.
func TestMarginIsNotNegative(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpRenew, Name: "jobs"})
	end(core.Outcome{Margin: -time.Second})
	for _, m := range g.collect().ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == MetricRenewMargin && h.DataPoints[0].Sum != 0 {
			t.Errorf("a margin of %v", h.DataPoints[0].Sum)
		}
	}
}

// A completion can be refused for a reason that is no loss of a lease.
func TestCompletionForgotten(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpComplete, Name: "jobs"})
	end(core.Outcome{Err: &core.OpError{Op: core.OpComplete, Err: core.ErrLost, Reason: core.LossForgotten}})
	want := []string{"operation.duration{error.type=forgotten,name=jobs,operation=complete,outcome=lost} 1"}
	if got := g.counted("operation.duration"); !slices.Equal(got, want) {
		t.Errorf("measured %q, want %q", got, want)
	}
	for point := range g.points() {
		if strings.HasPrefix(point, "losses{") && strings.Contains(point, "forgotten") {
			t.Errorf("%s: no lease is ever lost for that", point)
		}
	}
}

// A Locker that is closed before it hands out a lease has held nothing.
func TestClosedBeforeTheLease(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpHold, Name: "jobs"})
	end(core.Outcome{Err: core.ErrClosed})
	if got, want := g.counted("hold.duration", "leases", "losses"), []string{"leases{name=jobs} 0"}; !slices.Equal(got, want) {
		t.Errorf("measured %q, want %q", got, want)
	}
}

func TestWhatIsUnderWay(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := w.observer()
		locks, others := w.locks(o), w.locks(o)
		lease := w.acquire(locks, "k")
		for range 2 {
			go locks.Do(t.Context(), "k", func(context.Context) error { return nil })
		}
		go others.Do(t.Context(), "k", func(context.Context) error { return nil })
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := w.counted("leases", "waiters"), []string{"leases{name=jobs} 1", "waiters{name=jobs} 3"}; !slices.Equal(got, want) {
			t.Errorf("meanwhile %q, want %q", got, want)
		}
		lease.Release(t.Context())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got, want := w.counted("leases", "waiters"), []string{"leases{name=jobs} 0", "waiters{name=jobs} 0"}; !slices.Equal(got, want) {
			t.Errorf("at the end %q, want %q", got, want)
		}
	})
}

func TestRenewals(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lease := w.acquire(w.locks(w.observer()), "k")
		time.Sleep(31 * time.Second)
		ok := w.points()["operation.duration{name=jobs,operation=renew,outcome=renewed}"]
		if ok < 8 || ok > 11 || w.points()["renew.margin{name=jobs}"] != ok {
			t.Errorf("%v renewals in 31s with a TTL of 10s, %v margins", ok, w.points()["renew.margin{name=jobs}"])
		}
		for _, m := range w.collect().ScopeMetrics[0].Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == MetricRenewMargin {
				if mean := h.DataPoints[0].Sum / float64(h.DataPoints[0].Count); mean < 1 || mean > 8 {
					t.Errorf("%vs left at renewals, of 7.9s", mean)
				}
			}
		}
		w.each((*testutil.Node).Down)
		<-lease.Context().Done()
		synctest.Wait()
		if n := w.points()["operation.duration{error.type=unavailable,name=jobs,operation=renew,outcome=unavailable}"]; n < 1 {
			t.Errorf("%v failed renewals", n)
		}
	})
}

// The counters of losses exist before the first loss, so that the first loss is an increase.
func TestLossesStartAtZero(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.acquire(w.locks(w.observer()), "k").Release(t.Context())
		points := w.points()
		for _, reason := range lossReasons {
			if n, ok := points[fmt.Sprintf("losses{error.type=%s,name=jobs}", reason)]; !ok || n != 0 {
				t.Errorf("%s: %v, %v", reason, n, ok)
			}
		}
	})
}

// Every event of an adapter becomes a point.
func TestEvents(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		for range 2 {
			locks.Event(t.Context(), core.Event{Source: "queuelock", Name: "jobs", Kind: "duplicate_suppressed"})
		}
		locks.Event(t.Context(), core.Event{Source: "cronlock", Kind: "tick_run"})
		want := []string{"events{event=duplicate_suppressed,name=jobs,source=queuelock} 2", "events{event=tick_run,source=cronlock} 1"}
		if got := w.counted("events"); !slices.Equal(got, want) {
			t.Errorf("measured %q, want %q", got, want)
		}
	})
}
