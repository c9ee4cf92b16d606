package otellock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// The costs of an observer: series and allocations.

func TestSeriesDoNotGrowWithKeys(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 1, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		lock := func(i int) {
			lease := w.acquire(locks, fmt.Sprintf("order:%d", i))
			locks.TryAcquire(t.Context(), lease.Key())
			lease.Release(t.Context())
		}
		lock(0)
		synctest.Wait() // replies of nodes are observed beside the outcome
		before := len(w.points())
		for i := range 5000 {
			lock(i + 1)
		}
		if after := len(w.points()); after != before || before == 0 {
			t.Errorf("%d series after one key, %d after 5001", before, after)
		}
	})
}

// sdkLimit is the number of series of an instrument beyond which the SDK drops series.
const sdkLimit = 2000

// Names are meant to be few. If they are not, late names are counted together. Each instrument then stays below the
// limit of the SDK with everything that a name can meet, and nothing that alerts look for is lost.
func TestSeriesAreBounded(t *testing.T) {
	g := newGauge(t)
	o := g.observer(WithTracerProvider(tracenoop.NewTracerProvider()))
	failures := []core.Outcome{
		{}, {Err: core.ErrUnavailable}, {Err: errors.New("x")},
		{Err: core.ErrLost, Reason: core.LossTaken}, {Err: core.ErrLost, Reason: core.LossExpired},
	}
	outcomes := append([]core.Outcome{
		{Contended: true}, {Err: core.ErrHeld}, {Err: core.ErrDone}, {Err: core.ErrClosed}, {Err: core.ErrReleased},
		{Err: context.Canceled}, {Err: context.Canceled, Contended: true}, {Err: context.DeadlineExceeded},
	}, failures...)
	var holds []core.Outcome
	for _, reason := range lossReasons {
		holds = append(holds, core.Outcome{Err: core.ErrLost, Reason: reason})
	}
	ends := [][]core.Outcome{
		core.OpAcquire: outcomes, core.OpHold: holds,
		core.OpRenew: failures, core.OpRelease: failures, core.OpComplete: failures,
	}

	use := func(name string) {
		for kind, outcomes := range ends {
			for _, out := range outcomes {
				_, end := o.Start(t.Context(), core.Op{Kind: core.OpKind(kind), Name: name})
				end(out)
			}
		}
		for i := range 40 { // more kinds than an adapter has
			o.Event(t.Context(), core.Event{Source: "cronlock", Name: name, Kind: core.EventKind(fmt.Sprint("kind-", i))})
		}
	}

	const names = 400
	for i := range names {
		use(fmt.Sprintf("name-%d", i))
	}
	use("name-0")

	points, series := g.points(), map[string]int{}
	for point := range points {
		metric, _, _ := strings.Cut(point, "{")
		if series[metric]++; series[metric] > sdkLimit {
			t.Fatalf("%s has more than %d series", metric, sdkLimit)
		}
	}
	for point, want := range map[string]float64{
		"acquire.duration{contended=true,name=name-0,outcome=acquired}":   2,
		"acquire.duration{contended=true,name=name-127,outcome=acquired}": 1,
		"acquire.duration{contended=true,name=_other,outcome=acquired}":   names - 128,
		"events{event=kind-3,name=name-0,source=cronlock}":                2,
		"losses{error.type=clock,name=_other}":                            names - 128,
		"leases{name=_other}":                                             0,
		"hold.age{name=_other}":                                           0,
	} {
		if got, ok := points[point]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", point, got, ok, want)
		}
	}

	o.Event(t.Context(), core.Event{Source: "cronlock", Kind: "unnamed"})
	if n := g.points()["events{event=unnamed,source=cronlock}"]; n != 1 {
		t.Errorf("an event without a name was counted %v times as such", n)
	}
}

// Buckets are meant for seconds, unlike the default of the SDK.
func TestBuckets(t *testing.T) {
	g := newGauge(t)
	o := g.observer()
	for kind := core.OpAcquire; kind <= core.OpComplete; kind++ {
		_, end := o.Start(t.Context(), core.Op{Kind: kind})
		end(core.Outcome{})
	}
	o.Node(t.Context(), core.OpAcquire, core.NodeReply{Verdict: core.VerdictGranted})
	histograms := 0
	for _, m := range g.collect().ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
			histograms++
			if bounds := h.DataPoints[0].Bounds; m.Unit != "s" || bounds[1] > 0.1 || bounds[len(bounds)-1] > 14400 {
				t.Errorf("%s in %s: %v", m.Name, m.Unit, bounds)
			}
		}
		if m.Description == "" {
			t.Errorf("%s has no description", m.Name)
		}
	}
	if histograms != 5 {
		t.Errorf("%d histograms", histograms)
	}
}

// everything makes one call of each kind to an observer.
func everything(ctx context.Context, o core.Observer) {
	for kind := core.OpAcquire; kind <= core.OpComplete; kind++ {
		ctx, end := o.Start(ctx, core.Op{Kind: kind, Name: "jobs", Key: "k", Nodes: 3})
		if kind == core.OpAcquire {
			o.Hint(ctx)
		}
		if o.Node != nil { // it is nil if metrics go nowhere
			o.Node(ctx, kind, core.NodeReply{Node: 1, Addr: "10.0.0.1:6379", Verdict: core.VerdictGranted, Latency: time.Millisecond})
		}
		if end != nil {
			end(core.Outcome{})
		}
	}
	o.Event(ctx, core.Event{Source: "cronlock", Name: "jobs", Kind: "tick_run"})
}

func TestAllocationsForNobody(t *testing.T) {
	race.SkipAllocations(t)
	for name, tracers := range map[string]trace.TracerProvider{
		"by value": tracenoop.NewTracerProvider(), "by pointer": &tracenoop.TracerProvider{},
	} {
		o := newGauge(t).observer(WithMeterProvider(metricnoop.NewMeterProvider()), WithTracerProvider(tracers))
		if n := testing.AllocsPerRun(100, func() { everything(t.Context(), o) }); n > 0 {
			t.Errorf("no-op providers %s: %v allocations for one of each operation", name, n)
		}
	}
}

// An observer without providers costs a lock and its release no allocations, because core gathers nothing for it.
func TestAllocationsOfLockingForNobody(t *testing.T) {
	race.SkipAllocations(t)
	server := testutil.NewServers(t, 1)[0]
	o, err := New(WithMeterProvider(metricnoop.NewMeterProvider()), WithTracerProvider(tracenoop.NewTracerProvider()))
	if err != nil {
		t.Fatal(err)
	}
	least := func(o core.Observer) float64 {
		locks, err := core.Open([]string{"redis://" + server.Addr()}, core.WithObserver(o))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close(t.Context())
		best := math.Inf(1)
		for range 6 { // the first run fills pools; a busy machine adds some
			best = min(best, testing.AllocsPerRun(200, func() {
				if err := locks.Do(t.Context(), "k", func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}))
		}
		return best
	}
	if without, with := least(core.Observer{}), least(o); with > without {
		t.Errorf("%v allocations without an observer, %v with one that goes nowhere", without, with)
	}
}

// Exemplars link a bucket to a trace.
func TestExemplars(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		ctx, caller := w.span("caller")
		lease, err := locks.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		locks.TryAcquire(ctx, "k") // has a span of its own
		lease.Release(ctx)
		want := map[string]string{"acquired": caller.SpanContext().SpanID().String(), "held": w.ended()[0].SpanContext().SpanID().String()}
		for _, m := range w.collect().ScopeMetrics[0].Metrics {
			h, ok := m.Data.(metricdata.Histogram[float64])
			if !ok || m.Name != MetricAcquireDuration {
				continue
			}
			for _, p := range h.DataPoints {
				outcome, _ := p.Attributes.Value(AttrOutcome)
				if len(p.Exemplars) != 1 || trace.SpanID(p.Exemplars[0].SpanID).String() != want[outcome.AsString()] {
					t.Errorf("%s: exemplars %v, want one of %s", outcome.AsString(), p.Exemplars, want[outcome.AsString()])
				}
				delete(want, outcome.AsString())
			}
		}
		if len(want) != 0 {
			t.Errorf("nothing measured of %v", want)
		}
	})
}

// refusing is a meter provider that cannot make some instruments.
type refusing struct{ metricnoop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ metricnoop.Meter }

func (refusingMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return metricnoop.Int64Counter{}, errors.New("cannot make " + name)
}

func (refusingMeter) Float64ObservableGauge(name string, _ ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return metricnoop.Float64ObservableGauge{}, errors.New("cannot make " + name)
}

func TestFaultsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		opts []Option
		want []string
	}{
		"options": {[]Option{nil, WithMeterProvider(nil), WithTracerProvider(nil), WithSpanThreshold(-1)},
			[]string{"an option is nil", "meter provider is nil", "tracer provider is nil", "span threshold is -1ns"}},
		"instruments": {[]Option{WithMeterProvider(refusing{})}, []string{"cannot make " + MetricLosses, "cannot make " + MetricNodeClockOffset}},
	} {
		o, err := New(c.opts...)
		if o.Start != nil || err == nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
	}
	if _, err := New(); err != nil {
		t.Errorf("the global providers: %v", err)
	}
}

// The package depends on the API of OpenTelemetry, but not on the SDK or on the adapters whose decisions it counts.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		for _, unwanted := range []string{"go.opentelemetry.io/otel/sdk", "prometheus", "lockkit/cronlock", "lockkit/queuelock", "lockkit/httplock"} {
			if strings.Contains(pkg, unwanted) {
				t.Errorf("otellock depends on %s", pkg)
			}
		}
	}
	if !strings.Contains(string(out), "go.opentelemetry.io/otel/metric") {
		t.Errorf("go list shows %s", out)
	}
}
