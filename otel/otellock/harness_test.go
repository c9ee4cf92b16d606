package otellock

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

func init() { logging.Disable() } // go-redis prints each failed dial

// A world is a set of nodes in a synctest bubble, and the telemetry that is collected there.
type world struct {
	t     *testing.T
	nodes []*testutil.Node
	*gauge
}

// bubble runs f with n embedded nodes.
func bubble(t *testing.T, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f(t, &world{t, testutil.NewNodes(t, n), newGauge(t)})
	})
}

// locks returns the Locker of a new process.
func (w *world) locks(o core.Observer, opts ...core.Option) *core.Locker {
	w.t.Helper()
	clients := make([]redis.UniversalClient, len(w.nodes))
	for i, n := range w.nodes {
		clients[i] = n.ClientWith(func(o *redis.Options) { o.PoolSize = 200; o.MaxRetries = -1 })
	}
	opts = append([]core.Option{core.WithObserver(o), core.Name("jobs"), core.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	locks, err := core.New(clients, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := admin.Provision(w.t.Context(), locks); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		for _, n := range w.nodes {
			n.Up()
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		locks.Close(ctx)
		time.Sleep(time.Minute) // lets the clients finish
		synctest.Wait()
	})
	return locks
}

func (w *world) acquire(locks *core.Locker, key string) *core.Lease {
	w.t.Helper()
	return w.acquireIn(w.t.Context(), locks, key)
}

func (w *world) acquireIn(ctx context.Context, locks *core.Locker, key string) *core.Lease {
	w.t.Helper()
	lease, err := locks.Acquire(ctx, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return lease
}

func (w *world) each(f func(*testutil.Node)) {
	for _, n := range w.nodes {
		f(n)
	}
}

// A gauge is an OpenTelemetry SDK that keeps everything in memory.
type gauge struct {
	t       *testing.T
	reader  *sdkmetric.ManualReader
	spans   *tracetest.SpanRecorder
	meters  *sdkmetric.MeterProvider
	tracers *sdktrace.TracerProvider
}

func newGauge(t *testing.T) *gauge {
	g := &gauge{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	g.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(g.reader))
	g.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(g.spans))
	return g
}

func (g *gauge) observer(opts ...Option) core.Observer {
	g.t.Helper()
	o, err := New(append([]Option{WithMeterProvider(g.meters), WithTracerProvider(g.tracers)}, opts...)...)
	if err != nil {
		g.t.Fatal(err)
	}
	return o
}

// span starts a span of a caller.
func (g *gauge) span(name string) (context.Context, trace.Span) {
	return g.tracers.Tracer("test").Start(g.t.Context(), name)
}

func (g *gauge) collect() metricdata.ResourceMetrics {
	g.t.Helper()
	var all metricdata.ResourceMetrics
	if err := g.reader.Collect(context.Background(), &all); err != nil {
		g.t.Fatal(err)
	}
	return all
}

// points returns all values, by "name{attribute=value,…}" without the prefix of the project. The value of a histogram
// is its count.
func (g *gauge) points() map[string]float64 {
	points := map[string]float64{}
	for _, scope := range g.collect().ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				addCounts(points, m.Name, data)
			case metricdata.Histogram[int64]:
				addCounts(points, m.Name, data)
			case metricdata.Sum[int64]:
				addValues(points, m.Name, data.DataPoints)
			case metricdata.Gauge[int64]:
				addValues(points, m.Name, data.DataPoints)
			case metricdata.Gauge[float64]:
				addValues(points, m.Name, data.DataPoints)
			default:
				g.t.Fatalf("%s is a %T", m.Name, data)
			}
		}
	}
	return points
}

func addCounts[N int64 | float64](points map[string]float64, name string, h metricdata.Histogram[N]) {
	for _, p := range h.DataPoints {
		points[pointName(name, p.Attributes)] = float64(p.Count)
	}
}

func addValues[N int64 | float64](points map[string]float64, name string, values []metricdata.DataPoint[N]) {
	for _, p := range values {
		points[pointName(name, p.Attributes)] = float64(p.Value)
	}
}

func pointName(name string, set attribute.Set) string {
	var parts []string
	for _, a := range set.ToSlice() {
		parts = append(parts, strings.TrimPrefix(string(a.Key), "lockkit.")+"="+fmt.Sprint(a.Value.AsInterface()))
	}
	slices.Sort(parts)
	return strings.TrimPrefix(name, "lockkit.") + "{" + strings.Join(parts, ",") + "}"
}

// counted returns the points of the metrics that are not zero, as sorted lines. It always includes levels, because they
// must be back at zero at the end.
func (g *gauge) counted(metrics ...string) []string {
	var lines []string
	points := g.points()
	for _, name := range slices.Sorted(maps.Keys(points)) {
		metric, _, _ := strings.Cut(name, "{")
		level := metric == "leases" || metric == "waiters"
		if slices.Contains(metrics, metric) && (level || points[name] != 0) {
			lines = append(lines, fmt.Sprintf("%s %v", name, points[name]))
		}
	}
	return lines
}

// ended returns the spans that have ended, without the test's own.
func (g *gauge) ended() (spans []sdktrace.ReadOnlySpan) {
	for _, s := range g.spans.Ended() {
		if s.InstrumentationScope().Name == ScopeName {
			spans = append(spans, s)
		}
	}
	return spans
}

// attr returns the value of a span's attribute, or "" if the span has no such attribute.
func attr(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return fmt.Sprint(a.Value.AsInterface())
		}
	}
	return ""
}
