// Otel takes a lock now and then, and serves its metrics for Prometheus. Copy it.
//
//	export LOCKKIT_NODES=redis://localhost:6379   # or several, with commas
//	go run ./examples/minimal/otel
//	curl localhost:9464/metrics
package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/otel/otellock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := run(ctx); err != nil {
		slog.Error("service failed", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nodes := os.Getenv("LOCKKIT_NODES")
	if nodes == "" {
		return errors.New("LOCKKIT_NODES is not set; one Redis will do: LOCKKIT_NODES=redis://localhost:6379")
	}
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	meters := metric.NewMeterProvider(metric.WithReader(exporter))
	otel.SetMeterProvider(meters) // a service has this already, and a tracer provider
	observer, err := otellock.New()
	if err != nil {
		return err
	}
	locker, err := core.Open(strings.Split(nodes, ","), core.WithObserver(observer))
	if err != nil {
		return err // names every unfit node, and how to fix it
	}
	http.Handle("/metrics", promhttp.Handler())
	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDR"), ":9464"), ReadTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()

	for turns := time.NewTicker(time.Second); ctx.Err() == nil && err == nil; {
		select {
		case err = <-failed:
		case <-turns.C:
			err := locker.Do(ctx, core.Key("account", "7"), func(context.Context) error {
				return nil // the work
			}, core.Name("settle")) // metrics go by the name, and not by the key
			if err != nil && ctx.Err() == nil {
				slog.Error("account not settled", "err", err)
			}
		case <-ctx.Done():
		}
	}
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(ending), locker.Close(ending), meters.Shutdown(ending))
}
