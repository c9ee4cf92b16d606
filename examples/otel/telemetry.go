package main

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/otel/otellock"
)

// telemetry is the SDK of a service, as any would set it up: metrics for Prometheus to scrape, spans to the
// terminal instead of a collector.
type telemetry struct {
	observer core.Observer
	handler  http.Handler // /metrics
	tracer   trace.Tracer // of the service itself

	meters  *sdkmetric.MeterProvider
	tracers *sdktrace.TracerProvider
}

func newTelemetry(out io.Writer) (*telemetry, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	t := &telemetry{
		meters:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
		tracers: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&printer{out: out})),
		// Exemplars, which lead from a bucket to a trace, are part of OpenMetrics only.
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}),
	}
	t.tracer = t.tracers.Tracer("example")
	t.observer, err = otellock.New(otellock.WithMeterProvider(t.meters), otellock.WithTracerProvider(t.tracers))
	return t, err
}

func (t *telemetry) close() error {
	return errors.Join(t.meters.Shutdown(context.Background()), t.tracers.Shutdown(context.Background()))
}
