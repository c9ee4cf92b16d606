// Service has all adapters on one Locker, and ends them in order. Copy it.
//
//	export LOCKKIT_NODES=redis://localhost:6379   # or several, with commas
//	export REDIS_URL=redis://localhost:6379       # of asynq
//	go run ./examples/minimal/service
//	curl -X POST -H 'Idempotency-Key: "a-uuid"' localhost:8080/orders/42/charges   # twice: charged once
//	curl localhost:8080/metrics
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-co-op/gocron/v2"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/cronlock/gocronlock"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/otel/otellock"
	"github.com/lockkit/lockkit/queuelock"
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
	nodes, redis := os.Getenv("LOCKKIT_NODES"), os.Getenv("REDIS_URL")
	if nodes == "" || redis == "" {
		return errors.New("set LOCKKIT_NODES and REDIS_URL; one Redis will do for both: redis://localhost:6379")
	}
	queue, err := asynq.ParseRedisURI(redis)
	if err != nil {
		return err
	}
	exporter, err := prometheus.New()
	if err != nil {
		return err
	}
	meters := metric.NewMeterProvider(metric.WithReader(exporter))
	observer, err := otellock.New(otellock.WithMeterProvider(meters))
	if err != nil {
		return err
	}
	locker, err := core.Open(strings.Split(nodes, ","), core.WithObserver(observer))
	if err != nil {
		return err // names every unfit node, and how to fix it
	}
	tasks, err := queuelock.New(locker, queuelock.WithKey(queuelock.ByPayloadField("order"))) // one charge of an order at a time
	if err != nil {
		return err
	}
	s := &service{locker, tasks, queue, make(chan error, 2)}
	var ends []end
	for _, start := range []func() (end, error){s.serve, s.work, s.schedule} {
		end, err := start()
		if err != nil {
			s.failed <- err
			break
		}
		ends = append(ends, end)
	}
	select {
	case err = <-s.failed:
	case <-ctx.Done():
	}

	// First what brings work, all at once, so that none uses up the time of the others.
	ending, cancel := context.WithTimeout(context.Background(), 25*time.Second) // shorter than the deployment waits
	defer cancel()
	ended := make(chan error, len(ends))
	for _, end := range ends {
		go func() { ended <- end(ending) }()
	}
	for range ends {
		err = errors.Join(err, <-ended)
	}
	// Then the Locker, which frees what is still held; and the observer's counts last.
	return errors.Join(err, locker.Close(ending), meters.Shutdown(ending))
}

// A service is what its parts share.
type service struct {
	locker *core.Locker
	tasks  *queuelock.Middleware
	queue  asynq.RedisConnOpt
	failed chan error // why it cannot go on
}

// An end has work come to its end, or leaves it when ctx ends.
type end func(ctx context.Context) error

func (s *service) serve() (end, error) {
	orders, err := httplock.New(s.locker, "shop", httplock.ByParam("id"), httplock.WithIdempotency(true, httplock.NoSender)) // with users, a function that names the user
	if err != nil {
		return nil, err
	}
	client := asynq.NewClient(s.queue)
	r := gin.Default() // authentication goes here, before the locks
	r.GET("/metrics", gin.WrapH(promhttp.Handler()))
	r.GET("/health", func(c *gin.Context) { answer(c, s.locker.Ready(c.Request.Context())) })
	r.POST("/orders/:id/charges", orders.Lock, func(c *gin.Context) {
		run, _ := httplock.FromContext(c.Request.Context())
		charge, _ := json.Marshal(map[string]string{"order": c.Param("id")})
		_, err := client.EnqueueContext(c.Request.Context(), asynq.NewTask("charge", charge), queuelock.ID("charge", run.Identity)) // one for each request
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			err = nil // it was asked for before, and the answer did not arrive
		}
		answer(c, err)
	})
	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDR"), ":8080"), Handler: httplock.Arrived(r), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	server.RegisterOnShutdown(orders.Drain) // requests that wait are answered with 503
	go func() { s.failed <- server.ListenAndServe() }()
	return func(ctx context.Context) error {
		return errors.Join(server.Shutdown(ctx), orders.Close(ctx), client.Close())
	}, nil
}

func answer(c *gin.Context, err error) {
	if err != nil {
		c.JSON(http.StatusServiceUnavailable, gin.H{"error": err.Error()})
		return
	}
	c.JSON(http.StatusOK, gin.H{"ok": true})
}

func (s *service) work() (end, error) {
	cfg := asynq.Config{Concurrency: 20, ShutdownTimeout: 20 * time.Second}
	if err := s.tasks.Configure(&cfg); err != nil { // last, before NewServer
		return nil, err
	}
	mux := asynq.NewServeMux()
	mux.Use(s.tasks.Middleware)
	mux.HandleFunc("charge", func(ctx context.Context, t *asynq.Task) error {
		slog.InfoContext(ctx, "charged", "task", string(t.Payload()))
		return nil // ctx.Err() where it gives up because the context has ended
	})
	server := asynq.NewServer(s.queue, cfg)
	return func(ctx context.Context) error {
		done, stop := context.WithCancel(ctx)
		go func() { server.Shutdown(); stop() }() // takes minutes where asynq's Redis does not answer
		<-done.Done()
		if ctx.Err() != nil {
			return errors.New("asynq has not shut down in time")
		}
		return nil
	}, server.Start(mux)
}

func (s *service) schedule() (end, error) {
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		return nil, err
	}
	cron, err := cronlock.New(s.locker, "shop")
	if err != nil {
		return nil, err
	}
	report := func(ctx context.Context) error { slog.InfoContext(ctx, "report written"); return nil }
	_, err = gocronlock.Add(scheduler, cron, "report", cronlock.Every(5*time.Second), report)
	if err != nil {
		return nil, err
	}
	scheduler.Start()
	return func(ctx context.Context) error {
		return errors.Join(scheduler.ShutdownWithContext(ctx), cron.Close(ctx))
	}, nil
}
