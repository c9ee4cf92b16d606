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
	links     bool
	secret    []byte
	faults    faults.List
}

// WithMeterProvider sets where metrics go. Default: the global provider. For none, pass that of package
// go.opentelemetry.io/otel/metric/noop.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(c *config) { c.meters = p })
}

// WithTracerProvider sets where spans go. Default: the global provider. For none, pass that of package
// go.opentelemetry.io/otel/trace/noop.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option(func(c *config) { c.tracers = p })
}

// WithSpanThreshold sets how long an operation must take to have a span if it went well and waited for
// nobody. Default 50ms. With 0 every operation has one, and the spans of the Redis client are its children;
// otherwise a span is made when the operation ends, with the times it had.
func WithSpanThreshold(d time.Duration) Option {
	return option(func(c *config) { c.threshold = d })
}

// WithHolderLinks turns links between waiters and holders on or off. When on, the trace context of the span
// under which a lease is acquired, if it is sampled, is written beside the lease (24 bytes), so that the spans of
// those who wait for it, in any process, link to it. Default on.
func WithHolderLinks(on bool) Option { return option(func(c *config) { c.links = on }) }

// WithKeyHash puts a keyed hash of the key on spans (HMAC-SHA-256, 64 bits of it), so that spans of one key
// can be told from others by who knows the secret, and the key cannot be read. Default: spans have nothing
// of the key. Metrics never do.
func WithKeyHash(secret []byte) Option {
	return option(func(c *config) {
		c.faults.Check(len(secret) == 0, "the secret of the key hash is empty")
		c.secret = append([]byte{}, secret...)
	})
}

func newConfig(opts []Option) (config, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider(), threshold: 50 * time.Millisecond, links: true}
	faults.Apply(&c.faults, opts, func(o Option) { o.apply(&c) })
	c.faults.Check(c.meters == nil, "meter provider is nil")
	c.faults.Check(c.tracers == nil, "tracer provider is nil")
	c.faults.Check(c.threshold < 0, "span threshold is %v, must not be negative", c.threshold)
	return c, errors.Join(c.faults...)
}
