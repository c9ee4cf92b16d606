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
	meters        metric.MeterProvider
	tracers       trace.TracerProvider
	spanThreshold time.Duration
	faults        faults.List
}

// WithMeterProvider sets the provider that receives the metrics. The default is the global provider. To turn metrics
// off, pass the provider of package go.opentelemetry.io/otel/metric/noop.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(c *config) { c.meters = p })
}

// WithTracerProvider sets the provider that receives the spans. The default is the global provider. To turn spans off,
// pass the provider of package go.opentelemetry.io/otel/trace/noop.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option(func(c *config) { c.tracers = p })
}

// WithSpanThreshold sets how long an operation must take to get a span if it succeeded and did not find the key
// held. The default is 50ms. With 0, every operation gets a span.
func WithSpanThreshold(d time.Duration) Option {
	return option(func(c *config) { c.spanThreshold = d })
}

func newConfig(opts []Option) (config, error) {
	c := config{
		meters:        otel.GetMeterProvider(),
		tracers:       otel.GetTracerProvider(),
		spanThreshold: 50 * time.Millisecond,
	}
	faults.Apply(&c.faults, opts, func(o Option) { o.apply(&c) })
	c.faults.Check(c.meters == nil, "meter provider is nil")
	c.faults.Check(c.tracers == nil, "tracer provider is nil")
	c.faults.Check(c.spanThreshold < 0, "span threshold is %v, must not be negative", c.spanThreshold)
	return c, errors.Join(c.faults...)
}
