package otellock_test

import (
	"context"
	"log"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/otel/otellock"
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
