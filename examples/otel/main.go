// Otel serves the metrics of locks under load, and prints the spans of those who had to wait.
//
//	go run ./examples/otel            # until Ctrl-C
//	go run ./examples/otel -for 30s
//
// Two replicas of a service run cron jobs, a queue and an HTTP server on the same locks, while their nodes are
// killed and emptied. Point Prometheus at the address it prints, and import otel/dashboards/lockkit.json into
// Grafana; "make dashboards" checks that no panel is empty then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9464", "where to serve /metrics")
	length := flag.Duration("for", 0, "how long to run; 0 = until Ctrl-C")
	flag.Parse()
	stage.Run("otel", func(ctx context.Context) error {
		if *length > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, *length)
			defer cancel()
		}
		listener, err := net.Listen("tcp", *addr)
		if err != nil {
			return fmt.Errorf("%w (another address: -addr 127.0.0.1:0)", err)
		}
		return run(ctx, listener, os.Stdout)
	})
}

// run serves metrics on listener, and prints spans, until ctx ends.
func run(ctx context.Context, listener net.Listener, out io.Writer) error {
	telemetry, err := newTelemetry(out)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", telemetry.handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(out, "metrics: http://%s/metrics\n\n", listener.Addr())

	err = load(ctx, telemetry)
	err = errors.Join(err, server.Close())
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, telemetry.close())
}
