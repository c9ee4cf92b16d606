package otellock

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

type config struct {
	meters    metric.MeterProvider
	tracers   trace.TracerProvider
	threshold time.Duration
	faults    faults.List
}

// WithMeterProvider sets where metrics go. The default is the global provider. For no metrics, pass that of package
// go.opentelemetry.io/otel/metric/noop.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(c *config) { c.meters = p })
}

// WithTracerProvider sets where spans go. The default is the global provider. For no spans, pass that of package
// go.opentelemetry.io/otel/trace/noop.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option(func(c *config) { c.tracers = p })
}

// WithSpanThreshold sets how long an operation must take to get a span if it succeeded and nobody was in its way. The
// default is 50ms. With 0 every operation gets one.
func WithSpanThreshold(d time.Duration) Option {
	return option(func(c *config) { c.threshold = d })
}

func newConfig(opts []Option) (config, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider(), threshold: 50 * time.Millisecond}
	faults.Apply(&c.faults, opts, func(o Option) { o.apply(&c) })
	c.faults.Check(c.meters == nil, "meter provider is nil")
	c.faults.Check(c.tracers == nil, "tracer provider is nil")
	c.faults.Check(c.threshold < 0, "span threshold is %v, must not be negative", c.threshold)
	return c, errors.Join(c.faults...)
}
