package otellock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A single stuck key shows, however busy the other keys with its name are, and even if no caller waits for it.
func TestAgeOfTheOldestHold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer(), core.MaxHold(time.Hour))
		age := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			got, ok := w.points()["hold.age{name=jobs}"]
			if d := time.Duration(got * float64(time.Second)); !ok || d < want || d > want+50*time.Millisecond {
				t.Errorf("the oldest hold is %v old (%v), want %v", d, ok, want)
			}
		}

		quick, err := locks.TryAcquire(t.Context(), "quick")
		if err != nil {
			t.Fatal(err)
		}
		stuck := w.acquire(locks, "stuck")
		quick.Release(t.Context())
		for i := range 60 {
			lease := w.acquire(locks, fmt.Sprint("k", i))
			time.Sleep(10*time.Second - time.Millisecond)
			lease.Release(t.Context())
			time.Sleep(time.Millisecond)
		}

		age(10 * time.Minute)
		next := w.acquire(locks, "next")
		time.Sleep(20 * time.Second)
		age(10*time.Minute + 20*time.Second)
		stuck.Release(t.Context())
		age(20 * time.Second)
		next.Release(t.Context())
		age(0)

		lost := w.acquire(locks, "lost")
		w.each((*testutil.Node).Down)
		<-lost.Context().Done()
		age(0)
	})
}

// A name under which nothing was ever held has no age.
func TestNoAgeOfWhatWasNeverHeld(t *testing.T) {
	g := newGauge(t)
	_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpAcquire, Name: "jobs"})
	end(core.Outcome{Err: context.Canceled})
	if _, ok := g.points()["hold.age{name=jobs}"]; ok {
		t.Error("something was held")
	}
}

// Holds may end in any order and on any goroutine, while their age is read.
func TestHoldsEndInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGauge(t)
			o := g.observer()
			begun := time.Now()
			var ends []func(core.Outcome)
			for range 3 {
				_, end := o.Start(t.Context(), core.Op{Kind: core.OpHold, Name: "jobs"})
				ends = append(ends, end)
				time.Sleep(time.Second)
			}

			held := map[int]bool{0: true, 1: true, 2: true}
			for _, i := range order {
				ends[i](core.Outcome{Err: core.ErrReleased})
				delete(held, i)
				want := 0.0
				for i := range held {
					want = max(want, time.Since(begun).Seconds()-float64(i))
				}
				if got := g.points()["hold.age{name=jobs}"]; got != want {
					t.Errorf("order %v, with %v held: %v, want %v", order, held, got, want)
				}
			}
		})
	}

	g := newGauge(t)
	o := g.observer()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				_, end := o.Start(t.Context(), core.Op{Kind: core.OpHold, Name: "jobs"})
				g.points()
				end(core.Outcome{Err: core.ErrReleased})
			}
		})
	}
	all.Wait()
	if got := g.points()["hold.age{name=jobs}"]; got != 0 {
		t.Errorf("%v s at the end", got)
	}
}

// Packages that do not know of each other may make two observers in one process. Both are read.
func TestAgesOfTwoObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGauge(t)
		var ends []func(core.Outcome)
		for _, name := range []string{"billing", "orders"} {
			_, end := g.observer().Start(t.Context(), core.Op{Kind: core.OpHold, Name: name})
			ends = append(ends, end)
			time.Sleep(time.Second)
		}
		for name, want := range map[string]float64{"billing": 2, "orders": 1} {
			if got, ok := g.points()["hold.age{name="+name+"}"]; got != want {
				t.Errorf("%s: %v (%v), want %v", name, got, ok, want)
			}
		}
		for _, end := range ends {
			end(core.Outcome{Err: core.ErrReleased})
		}
	})
}

// The age of holds is reported even if a View drops other instruments. So are the votes and clock offsets of nodes.
func TestAgeIsOnItsOwn(t *testing.T) {
	g := newGauge(t)
	drop := sdkmetric.NewView(sdkmetric.Instrument{Name: "lockkit.hold.duration"}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}})
	more := func(name string) sdkmetric.View {
		return sdkmetric.NewView(sdkmetric.Instrument{Name: name}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}})
	}
	g.reader = sdkmetric.NewManualReader()
	g.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(g.reader), sdkmetric.WithView(drop, more("lockkit.leases"), more("lockkit.losses"), more("lockkit.node.request.duration")))
	o := g.observer(WithTracerProvider(tracenoop.NewTracerProvider()))
	o.Start(t.Context(), core.Op{Kind: core.OpHold, Name: "jobs"})
	o.Node(t.Context(), core.OpAcquire, core.NodeReply{Verdict: core.VerdictGranted})
	points := g.points()
	for _, name := range []string{"hold.age{name=jobs}", "node.voting{node.index=0}", "node.clock.offset{node.index=0}"} {
		if _, ok := points[name]; !ok {
			t.Errorf("%s is missing: %v", name, points)
		}
	}
}

// Texts that are exported are valid, whatever names, addresses and events there are.
func TestTextsAreValid(t *testing.T) {
	g := newGauge(t)
	o := g.observer(WithSpanThreshold(0))
	for _, name := range []string{"job-\xff", "job-\xfe", "\xff"} {
		for kind := core.OpAcquire; kind <= core.OpComplete; kind++ {
			_, end := o.Start(t.Context(), core.Op{Kind: kind, Name: name})
			end(core.Outcome{Err: core.ErrLost, Reason: core.LossReason(name)})
		}
		o.Event(t.Context(), core.Event{Source: name, Name: name, Kind: core.EventKind(name)})
		o.Node(t.Context(), core.OpAcquire, core.NodeReply{Addr: name, Verdict: core.VerdictGranted})
	}
	for point := range g.points() {
		if !utf8.ValidString(point) {
			t.Errorf("%q", point)
		}
	}
	for _, span := range g.ended() {
		texts := []string{span.Name(), span.Status().Description}
		for _, a := range span.Attributes() {
			texts = append(texts, a.Value.Emit())
		}
		for _, text := range texts {
			if !utf8.ValidString(text) {
				t.Errorf("%q", text)
			}
		}
	}
}
