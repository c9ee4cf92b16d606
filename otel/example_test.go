package otellock_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/otel"
)

func ExampleNew() {
	observer, err := otellock.New() // OpenTelemetry's global providers
	if err != nil {
		log.Fatal(err)
	}
	locks, err := core.Open([]string{"redis://localhost:6379"}, core.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
}

// Spans alone, of every operation, beside an observer of one's own.
func ExampleNew_beside() {
	observer, err := otellock.New(otellock.WithMeterProvider(noop.NewMeterProvider()),
		otellock.WithTracerProvider(trace.NewTracerProvider()), otellock.WithSpanThreshold(0))
	if err != nil {
		log.Fatal(err)
	}
	decided := observer.Event
	observer.Event = func(ctx context.Context, e core.Event) {
		decided(ctx, e)
		fmt.Println(e.Source, e.Kind)
	}

	locks, err := core.Open([]string{"redis://localhost:6379"}, core.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
}
