package otellock

import (
	"context"
	"fmt"
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
		if attr(s, AttrToken) != fmt.Sprint(next.FencingToken()) || attr(s, AttrOutcome) != "acquired" || attr(s, AttrName) != "jobs" || attr(s, AttrContended) != "true" || attr(s, AttrMargin) == "" {
			t.Errorf("attributes %v", s.Attributes())
		}
		checkLinks(t, s, linkBlockedBy, holder.SpanContext())
		next.Release(t.Context())
	})
}

// A set of keys that waited has one span, with the number of its keys and without a token. A single key has no number.
func TestSpanOfASet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := w.observer()
		locks, others := w.locks(o), w.locks(o)
		lease := w.acquireIn(t.Context(), others, "b")
		time.AfterFunc(2*time.Second, func() { lease.Release(t.Context()) })
		set, err := locks.AcquireAll(t.Context(), []string{"c", "b", "a"})
		if err != nil {
			t.Fatal(err)
		}

		spans := w.ended()
		if len(spans) != 1 {
			t.Fatalf("%d spans", len(spans))
		}
		s := spans[0]
		if s.Name() != "lockkit.acquire" || attr(s, AttrKeys) != "3" || attr(s, AttrToken) != "" || attr(s, AttrContended) != "true" {
			t.Errorf("%s with %v", s.Name(), s.Attributes())
		}
		if err := set.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// checkLinks checks that s has one link, of the kind what, to span.
func checkLinks(t *testing.T, s sdktrace.ReadOnlySpan, what string, span trace.SpanContext) {
	t.Helper()
	if links := s.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != span.SpanID() || links[0].SpanContext.TraceID() != span.TraceID() ||
		links[0].Attributes[0].Value.AsString() != what {
		t.Errorf("%s has links %v, want %s %v", s.Name(), links, what, span.SpanID())
	}
}

// A caller that waits in line in the holder's process, or that gives up, also gets a link to the holder.
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

// Trace context is written with the lease only if it can be used: spans are made, and the caller's span is sampled.
func TestTraceContextIsOptional(t *testing.T) {
	for name, c := range map[string]struct {
		opts    func(g *gauge) []Option
		sampled bool
		carries bool
	}{
		"by default":     {func(*gauge) []Option { return nil }, true, true},
		"not sampled":    {func(*gauge) []Option { return nil }, false, false},
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
				if err != nil || (r.Metadata != "") != c.carries {
					t.Errorf("the lease is %+v (%v), carries a trace: want %v", r, err, c.carries)
				}
			})
		})
	}
}

// Any stored text can be parsed as trace context. A text that parses is written back unchanged.
func FuzzTraceContext(f *testing.F) {
	for _, s := range []string{"", "short", strings.Repeat("\x00", hintLen), strings.Repeat("\x00", 16) + "12345678", strings.Repeat("x ", hintLen/2), strings.Repeat("y", hintLen+1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		span, ok := parseHint(s)
		if !ok {
			return
		}
		o := &observer{tracer: tracenoop.Tracer{}}
		if again := o.hint(trace.ContextWithSpanContext(t.Context(), span)); again != s {
			t.Errorf("%q becomes %q", s, again)
		}
	})
}

// With a threshold of 0, all operations have a span. The span of an acquisition is a child of the caller's, and the
// others are linked to the caller's.
func TestEveryOperationHasASpanIfAsked(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer(WithSpanThreshold(0)))
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

// checkPlace checks that an acquisition's span is a child of the caller's. Any other span must be in a trace of its
// own, and linked to the caller's.
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

// A loss shows in the trace of the holder. The span under which the lease was acquired gets an event, if it is still
// open. In any case the loss has a span of its own, because a holder may end its span as soon as its context ends. A
// sampler that drops spans without a parent keeps the span of the loss.
func TestLossShowsInTheHoldersTrace(t *testing.T) {
	down := func(w *world, _ func(), _ *core.Lease) { w.each((*testutil.Node).Down) }
	for name, c := range map[string]struct {
		opts   []Option
		lose   func(w *world, cancel func(), lease *core.Lease)
		atOnce bool   // the holder ends its span as soon as its context ends
		reason string // empty: the trace shows no loss
		span   string // the name of otellock's span
	}{
		"lost":                   {nil, down, false, "expired", "lockkit.hold"},
		"lost, holder quick":     {nil, down, true, "expired", "lockkit.hold"},
		"every operation a span": {[]Option{WithSpanThreshold(0)}, down, false, "expired", "lockkit.hold"},
		"abandoned":              {nil, func(_ *world, cancel func(), _ *core.Lease) { cancel() }, false, "", ""},
		"found by the release": {nil, func(w *world, _ func(), lease *core.Lease) {
			w.each((*testutil.Node).Flush)
			lease.Release(lease.Context())
		}, false, "taken", "lockkit.release"},
		"no spans wanted": {[]Option{WithTracerProvider(tracenoop.NewTracerProvider())}, down, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				w.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans),
					sdktrace.WithSampler(sdktrace.ParentBased(only("request"))))
				ctx, request := w.span("request")
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				lease, err := w.locks(w.observer(c.opts...)).Acquire(ctx, "k")
				if err != nil {
					t.Fatal(err)
				}

				c.lose(w, cancel, lease)
				<-lease.Context().Done()
				if c.atOnce {
					request.End()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				request.End()
				if !c.atOnce {
					checkLoss(t, w.spanNamed("request"), c.reason)
				}
				w.checkLossSpan(c.span, c.reason, request.SpanContext())
			})
		})
	}
}

// checkLossSpan checks that one span with the name reports a loss in the trace of the holder, or that there is none if
// the name is empty.
func (w *world) checkLossSpan(name, reason string, holder trace.SpanContext) {
	w.t.Helper()
	lost := slices.DeleteFunc(w.ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "lockkit.acquire" })
	if (len(lost) == 1) != (name != "") {
		w.t.Fatalf("%d spans of losses", len(lost))
	}
	for _, s := range lost {
		checkLinks(w.t, s, linkHolder, holder)
		if s.Name() != name || s.Parent().SpanID() != holder.SpanID() || attr(s, AttrErrorType) != reason {
			w.t.Errorf("%s under %v: %v", s.Name(), s.Parent().SpanID(), s.Attributes())
		}
	}
}

// only samples the spans with a name.
type only string

func (o only) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == string(o) {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return sdktrace.NeverSample().ShouldSample(p)
}

func (only) Description() string { return "by name" }

func (w *world) spanNamed(name string) sdktrace.ReadOnlySpan {
	spans := w.spans.Ended()
	return spans[slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == name })]
}

// checkLoss checks that a span reports the loss of a lease for the reason, or no loss if the reason is empty.
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
	for _, want := range []string{reason, "jobs", string(AttrToken)} {
		if !strings.Contains(got, want) {
			t.Errorf("attributes %s lack %s", got, want)
		}
	}
}

// The span of a renewal has the token of the lease, and the time that the lease had left.
func TestSpanOfARenewal(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpRenew, Token: 7})
	end(core.Outcome{Err: core.ErrUnavailable, Margin: 2 * time.Second})
	if s := g.ended()[0]; attr(s, AttrToken) != "7" || attr(s, AttrMargin) != "2" {
		t.Errorf("attributes %v", s.Attributes())
	}
}

// A slow operation has a span, even without contention.
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

// No exported data contain the key.
func TestKeysStayPrivate(t *testing.T) {
	const key = "order:smith:jane@example.org"
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer(WithSpanThreshold(0)))
		ctx, caller := w.span("caller")
		lease := w.acquireIn(ctx, locks, key)
		locks.TryAcquire(ctx, key)
		w.each((*testutil.Node).Down)
		<-lease.Context().Done()
		lease.Complete(ctx, nil)
		lease.Release(ctx)
		locks.TryAcquire(ctx, key)
		synctest.Wait()
		caller.End()
		var all strings.Builder
		for _, s := range w.spans.Ended() {
			fmt.Fprintln(&all, s.Name(), s.Attributes(), s.Links(), s.Status(), s.Events())
		}
		fmt.Fprintln(&all, w.points())
		if text := all.String(); strings.Contains(text, "smith") || strings.Contains(text, "jane") || !strings.Contains(text, "unavailable") {
			t.Errorf("exported: %s", text)
		}
	})
}
