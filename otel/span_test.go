package otellock

import (
	"context"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

func TestSpanOfAWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := w.observer()
		locks, others := w.locks(o), w.locks(o)
		_, holder := w.span("the holder")
		lease := w.acquireIn(trace.ContextWithSpan(t.Context(), holder), others, "k")
		time.AfterFunc(2*time.Second, func() { lease.Release(t.Context()) })
		ctx, waiter := w.span("the waiter")
		began := time.Now()
		next := w.acquireIn(ctx, locks, "k")
		took := time.Since(began)
		spans := w.ended()
		if len(spans) != 1 {
			t.Fatalf("%d spans: only the acquisition that waited has one", len(spans))
		}
		s := spans[0]
		if s.Name() != "lockkit.acquire" || s.Parent().SpanID() != waiter.SpanContext().SpanID() || s.SpanKind() != trace.SpanKindInternal || s.Status().Code != codes.Unset {
			t.Errorf("%s of %v, %v, %v", s.Name(), s.Parent(), s.SpanKind(), s.Status())
		}
		if !s.StartTime().Equal(began) || s.EndTime().Sub(s.StartTime()) != took {
			t.Errorf("from %v for %v, want %v for %v", s.StartTime(), s.EndTime().Sub(s.StartTime()), began, took)
		}
		if n := attr(s, AttrAttempts); n == "" || n == "1" {
			t.Errorf("%s attempts", n)
		}
		if votes := attr(s, AttrVotes); strings.Count(votes, "granted") < 2 || len(strings.Fields(votes)) != 3 {
			t.Errorf("votes %s", votes)
		}
		if attr(s, AttrToken) != fmt.Sprint(next.FencingToken()) || attr(s, AttrOutcome) != "acquired" || attr(s, AttrName) != "jobs" || attr(s, AttrContended) != "true" {
			t.Errorf("attributes %v", s.Attributes())
		}
		checkLinks(t, s, linkBlockedBy, holder.SpanContext())
		next.Release(t.Context())
	})
}

// checkLinks: s has one link, which is what to that span.
func checkLinks(t *testing.T, s sdktrace.ReadOnlySpan, what string, span trace.SpanContext) {
	t.Helper()
	if links := s.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != span.SpanID() || links[0].SpanContext.TraceID() != span.TraceID() ||
		links[0].Attributes[0].Value.AsString() != what {
		t.Errorf("%s has links %v, want %s %v", s.Name(), links, what, span.SpanID())
	}
}

// Who waits in line in the holder's process, or gives up, is told as well.
func TestLinksToTheHolder(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := w.observer()
		locks, others := w.locks(o), w.locks(o)
		ctx, holder := w.span("the holder")
		lease, err := locks.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*core.Locker{locks, others} {
			l.TryAcquire(t.Context(), "k")
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			l.Acquire(short, "k")
			cancel()
		}
		spans := w.ended()
		if len(spans) != 4 {
			t.Fatalf("%d spans", len(spans))
		}
		for _, s := range spans {
			checkLinks(t, s, linkBlockedBy, holder.SpanContext())
		}
		lease.Release(t.Context())
	})
}

// Trace context is written with the lease only when somebody has use for it.
func TestTraceContextIsOptional(t *testing.T) {
	for name, c := range map[string]struct {
		opts    func(g *gauge) []Option
		sampled bool
		carries bool
	}{
		"by default":     {func(*gauge) []Option { return nil }, true, true},
		"not sampled":    {func(*gauge) []Option { return nil }, false, false},
		"switched off":   {func(*gauge) []Option { return []Option{WithHolderLinks(false)} }, true, false},
		"without traces": {func(*gauge) []Option { return []Option{WithTracerProvider(tracenoop.NewTracerProvider())} }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				locks := w.locks(w.observer(c.opts(w.gauge)...), core.Note(""), core.Name(""))
				sampler := sdktrace.NeverSample()
				if c.sampled {
					sampler = sdktrace.AlwaysSample()
				}
				ctx, _ := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler)).Tracer("").Start(t.Context(), "caller")
				if _, err := locks.Acquire(ctx, "k"); err != nil {
					t.Fatal(err)
				}
				value, err := w.nodes[0].Exec("GET", "lockkit:{0}r:k")
				if err != nil {
					t.Fatal(err)
				}
				r, err := testutil.ParseResource(value.(string))
				if err != nil || (r.Carried != "") != c.carries {
					t.Errorf("the lease is %+v (%v), carries a trace: want %v", r, err, c.carries)
				}
			})
		})
	}
}

// Whatever stands there, a waiter is not harmed by it.
func FuzzTraceContext(f *testing.F) {
	for _, s := range []string{"", "short", strings.Repeat("\x00", traceLen), strings.Repeat("\x00", 16) + "12345678", strings.Repeat("x ", traceLen/2), strings.Repeat("y", traceLen+1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		span, ok := parseTrace(s)
		if !ok {
			return
		}
		o := &observer{tracer: tracenoop.Tracer{}, conf: config{links: true}}
		if again := o.hint(trace.ContextWithSpanContext(t.Context(), span)); again != s {
			t.Errorf("%q becomes %q", s, again)
		}
	})
}

// With a threshold of 0 all have a span: the acquisition under the caller's, the others linked to it.
func TestEveryOperationHasASpanIfAsked(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer(WithSpanThreshold(0), WithHolderLinks(false)))
		ctx, caller := w.span("caller")
		lease, err := locks.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // one renewal
		lease.Release(ctx)
		again, err := locks.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		again.Complete(ctx, nil)
		synctest.Wait()
		var names []string
		for _, s := range w.ended() {
			names = append(names, s.Name())
			checkPlace(t, s, caller.SpanContext())
		}
		if want := []string{"lockkit.acquire", "lockkit.renew", "lockkit.hold", "lockkit.release", "lockkit.acquire", "lockkit.hold", "lockkit.complete"}; !slices.Equal(names, want) {
			t.Errorf("spans %q, want %q", names, want)
		}
	})
}

// checkPlace: an acquisition is under the caller's span, all else in a trace of its own, linked to it.
func checkPlace(t *testing.T, s sdktrace.ReadOnlySpan, caller trace.SpanContext) {
	t.Helper()
	if s.Name() == "lockkit.acquire" {
		if s.Parent().SpanID() != caller.SpanID() || len(s.Links()) != 0 {
			t.Errorf("acquisition under %v with links %v", s.Parent(), s.Links())
		}
		return
	}
	if s.Parent().IsValid() || s.SpanContext().TraceID() == caller.TraceID() {
		t.Errorf("%s is nested under %v", s.Name(), s.Parent())
	}
	checkLinks(t, s, linkHolder, caller)
	if attr(s, AttrToken) == "" {
		t.Errorf("%s has no token", s.Name())
	}
}

// Then the spans of the Redis client are children of the operation.
func TestNodeCallsNestUnderTheSpan(t *testing.T) {
	g := newGauge(t)
	ctx, end := g.observer(WithSpanThreshold(0)).Start(t.Context(), core.Op{Kind: core.OpAcquire})
	inner := trace.SpanContextFromContext(ctx)
	end(core.Outcome{})
	if s := g.ended(); len(s) != 1 || s[0].SpanContext().SpanID() != inner.SpanID() || !inner.IsValid() {
		t.Errorf("node calls run under %v, the spans are %v", inner, s)
	}
}

// A loss shows in the trace of those who lost, and not only in one of its own, which a sampler may drop.
func TestLossShowsInTheHoldersTrace(t *testing.T) {
	for name, c := range map[string]struct {
		opts []Option
		lose func(w *world, cancel func(), lease *core.Lease)
		want string // the reason; empty: there was no loss
	}{
		"lost":                   {nil, func(w *world, _ func(), _ *core.Lease) { w.each((*testutil.Node).Down) }, "expired"},
		"every operation a span": {[]Option{WithSpanThreshold(0)}, func(w *world, _ func(), _ *core.Lease) { w.each((*testutil.Node).Down) }, "expired"},
		"abandoned":              {nil, func(_ *world, cancel func(), _ *core.Lease) { cancel() }, ""},
		"found by the release": {nil, func(w *world, _ func(), lease *core.Lease) {
			w.each((*testutil.Node).Flush)
			lease.Release(lease.Context())
		}, "taken"},
		"no spans wanted": {[]Option{WithTracerProvider(tracenoop.NewTracerProvider())}, func(w *world, _ func(), _ *core.Lease) { w.each((*testutil.Node).Down) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				ctx, request := w.span("request")
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				lease, err := w.locks(w.observer(append(c.opts, WithKeyHash([]byte("secret")))...)).Acquire(ctx, "k")
				if err != nil {
					t.Fatal(err)
				}
				c.lose(w, cancel, lease)
				<-lease.Context().Done()
				time.Sleep(time.Minute)
				synctest.Wait()
				request.End()
				checkLoss(t, w.spanNamed("request"), c.want)
			})
		})
	}
}

func (w *world) spanNamed(name string) sdktrace.ReadOnlySpan {
	spans := w.spans.Ended()
	return spans[slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == name })]
}

// checkLoss checks that a span says that a lease was lost, and for what reason; or none, if reason is empty.
func checkLoss(t *testing.T, s sdktrace.ReadOnlySpan, reason string) {
	t.Helper()
	events, status := s.Events(), s.Status()
	if reason == "" {
		if len(events) != 0 || status.Code != codes.Unset {
			t.Errorf("events %v, status %v", events, status)
		}
		return
	}
	if status.Code != codes.Error || !strings.Contains(status.Description, reason) {
		t.Errorf("status %v", status)
	}
	if len(events) != 1 || events[0].Name != "lockkit.lost" {
		t.Fatalf("events %v", events)
	}
	got := fmt.Sprint(events[0].Attributes)
	for _, want := range []string{reason, "jobs", string(AttrToken), string(AttrKeyHash)} {
		if !strings.Contains(got, want) {
			t.Errorf("attributes %s lack %s", got, want)
		}
	}
}

// A backend tells by the scope which release measured.
func TestScopeHasAVersion(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer(WithSpanThreshold(0)).Start(t.Context(), core.Op{Kind: core.OpAcquire})
	end(core.Outcome{})
	if v := g.ended()[0].InstrumentationScope().Version; v == "" {
		t.Error("spans have no version")
	}
	if v := g.collect().ScopeMetrics[0].Scope.Version; v == "" {
		t.Error("metrics have no version")
	}
	const path = "github.com/lockkit/lockkit"
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.3":  {Main: debug.Module{Path: "example.org/service", Version: "v9.0.0"}, Deps: []*debug.Module{{Path: path, Version: "v1.2.3"}}},
		"v1.2.4":  {Deps: []*debug.Module{{Path: path, Version: "v1.2.3", Replace: &debug.Module{Path: "example.org/fork", Version: "v1.2.4"}}}},
		"v1.3.0":  {Main: debug.Module{Path: path, Version: "v1.3.0"}},
		"(devel)": {Deps: []*debug.Module{{Path: path, Version: "v1.2.3", Replace: &debug.Module{Path: "../lockkit"}}}},
	} {
		if got := versionIn(info); got != want {
			t.Errorf("version %q, want %q", got, want)
		}
	}
	if got := versionIn(&debug.BuildInfo{}); got != "(devel)" {
		t.Errorf("version %q of a program that does not say", got)
	}
}

// Slow is worth a span, also where nobody was in the way.
func TestSlowOperationsHaveSpans(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		locks := w.locks(w.observer(WithSpanThreshold(100 * time.Millisecond)))
		w.acquire(locks, "k").Release(t.Context())
		if spans := w.ended(); len(spans) != 0 {
			t.Fatalf("%d spans of quick operations", len(spans))
		}
		w.nodes[0].Slow(100 * time.Millisecond)
		w.acquire(locks, "k").Release(t.Context())
		if spans := w.ended(); len(spans) != 2 || spans[0].Name() != "lockkit.acquire" || spans[1].Name() != "lockkit.release" {
			t.Errorf("%d spans of slow operations", len(spans))
		}
	})
}

// Nothing that is exported has the key, unless asked for, and then hashed with a secret.
func TestKeysStayPrivate(t *testing.T) {
	const key = "order:smith:jane@example.org"
	for name, opts := range map[string][]Option{"by default": nil, "hashed": {WithKeyHash([]byte("secret"))}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				locks := w.locks(w.observer(append(opts, WithSpanThreshold(0))...))
				lease := w.acquire(locks, key)
				locks.TryAcquire(t.Context(), key)
				w.each((*testutil.Node).Down)
				<-lease.Context().Done()
				lease.Complete(t.Context(), nil)
				lease.Release(t.Context())
				locks.TryAcquire(t.Context(), key)
				synctest.Wait()
				var all strings.Builder
				for _, s := range w.ended() {
					fmt.Fprintln(&all, s.Name(), s.Attributes(), s.Links(), s.Status(), s.Events())
					if hash := attr(s, AttrKeyHash); (hash != "") != (opts != nil) || hash != "" && !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(hash) {
						t.Errorf("%s: hash %q", s.Name(), hash)
					}
				}
				fmt.Fprintln(&all, w.points())
				if text := all.String(); strings.Contains(text, "smith") || strings.Contains(text, "jane") || !strings.Contains(text, "unavailable") {
					t.Errorf("exported: %s", text)
				}
			})
		})
	}
	a, again, b := &observer{conf: config{secret: []byte("a")}}, &observer{conf: config{secret: []byte("a")}}, &observer{conf: config{secret: []byte("b")}}
	if a.hash("k") == b.hash("k") || a.hash("k") == a.hash("l") || a.hash("k") != again.hash("k") {
		t.Error("the hash does not depend on key and secret alone")
	}
}
