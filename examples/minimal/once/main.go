// Once books each payment exactly once in SQLite or PostgreSQL, whether a request, a task or a tick asks for it. Copy it.
//
//	export LOCKKIT_NODES=redis://localhost:6379   # or several, with commas
//	export REDIS_URL=redis://localhost:6379       # of asynq
//	cd examples/minimal/once                      # a nested module, because of the drivers
//	go run . -create                              # makes the tables in payments.db; -postgres URL is for a PostgreSQL
//	go run .                                      # in two terminals, the second with ADDR=:8081
//	curl -X POST -H 'Idempotency-Key: "a-uuid"' localhost:8080/orders/42/payments         # twice: the same receipt
//	curl -X POST -H 'Idempotency-Key: "b-uuid"' localhost:8080/orders/42/payments/later   # by a task
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/queuelock"
)

var (
	file     = flag.String("sqlite", "payments.db", "the SQLite database")
	postgres = flag.String("postgres", "", "the `URL` of a PostgreSQL database, instead of SQLite")
	create   = flag.Bool("create", false, "create the tables, and end")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	err := run(ctx)
	if err != nil {
		slog.Error("shop failed", "err", err)
		os.Exit(1)
	}
}

// A shop books payments.
type shop struct {
	db    *sql.DB
	store *fence.Store
	queue *asynq.Client
}

// pay books a payment, and returns its receipt. These lines are the same in a request, a task and a tick: the context
// names the work and has its lease. If an earlier try has booked the payment, Do returns the receipt of that one.
func (s *shop) pay(ctx context.Context, order string) (receipt []byte, err error) {
	receipt, err = s.store.Do(ctx, s.db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		receipt := rand.Text()
		_, err := tx.ExecContext(ctx, "INSERT INTO payment VALUES ($1, $2, 10)", receipt, order)
		return []byte(receipt), err
	})

	switch {
	case errors.Is(err, core.ErrDone):
		slog.InfoContext(ctx, "paid before", "order", order, "receipt", string(receipt))
		return receipt, nil
	case err != nil:
		return nil, err
	}
	slog.InfoContext(ctx, "paid", "order", order, "receipt", string(receipt))
	return receipt, nil
}

// payNow pays in the request.
func (s *shop) payNow(w http.ResponseWriter, r *http.Request) {
	receipt, err := s.pay(r.Context(), r.PathValue("order"))
	switch {
	case err == nil:
		w.Write(receipt)
	case httplock.Lost(r, err): // the middleware responds with 503
	default:
		slog.ErrorContext(r.Context(), "not paid", "err", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

// payLater enqueues a task that pays.
func (s *shop) payLater(w http.ResponseWriter, r *http.Request) {
	run, _ := httplock.FromContext(r.Context())
	payload, _ := json.Marshal(r.PathValue("order"))
	task := asynq.NewTask("pay", payload)

	// Each request has one task. If the request is repeated, the task may be there.
	_, err := s.queue.EnqueueContext(r.Context(), task, queuelock.ID("pay", run.Identity))
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		slog.ErrorContext(r.Context(), "not enqueued", "err", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// payTask pays in a task.
func (s *shop) payTask(ctx context.Context, t *asynq.Task) error {
	var order string
	err := json.Unmarshal(t.Payload(), &order)
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}

	_, err = s.pay(ctx, order)
	return err
}

// payFee pays at each tick.
func (s *shop) payFee(ctx context.Context) error {
	run, _ := cronlock.FromContext(ctx)
	_, err := s.pay(ctx, "fee-"+run.Tick.Format(time.RFC3339))
	return err
}

func run(ctx context.Context) error {
	db, store, err := openDatabase()
	if err != nil {
		return err
	}
	defer db.Close()

	if *create {
		_, err := db.ExecContext(ctx, store.Schema()+
			"CREATE TABLE payment (receipt TEXT NOT NULL, order_id TEXT NOT NULL, amount BIGINT NOT NULL)")
		return err
	}

	nodes, redis := os.Getenv("LOCKKIT_NODES"), os.Getenv("REDIS_URL")
	if nodes == "" || redis == "" {
		return errors.New("set LOCKKIT_NODES and REDIS_URL; one Redis will do for both: redis://localhost:6379")
	}
	queue, err := asynq.ParseRedisURI(redis)
	if err != nil {
		return err
	}

	// If a replica dies, another one can do its work after the TTL.
	locker, err := core.Open(strings.Split(nodes, ","), core.TTL(3*time.Second))
	if err != nil {
		return err // names every unfit node, and how to fix it
	}
	s := &shop{db, store, asynq.NewClient(queue)}

	cron, err := cronlock.New(locker, "shop")
	if err != nil {
		return err
	}
	_, err = cron.Add("fee", cronlock.Every(5*time.Second), s.payFee, cronlock.AtLeastOnce(10)) // again, if its replica dies
	if err != nil {
		return err
	}

	worker, err := s.startWorker(locker, queue)
	if err != nil {
		return err
	}

	requests, err := httplock.New(locker, "shop",
		httplock.WithIdempotency(true, httplock.NoSender)) // if the shop has users, pass a function that returns the user
	if err != nil {
		return err
	}
	server := s.newServer(requests)
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()

	select {
	case err = <-failed:
	case <-ctx.Done():
	}

	ending, cancel := context.WithTimeout(context.Background(), 25*time.Second) // shorter than the deployment waits
	defer cancel()
	return errors.Join(err, server.Shutdown(ending), requests.Close(ending), cron.Close(ending), shutDown(ending, worker),
		s.queue.Close(), locker.Close(ending))
}

func openDatabase() (*sql.DB, *fence.Store, error) {
	if *postgres != "" {
		db, err := sql.Open("pgx", *postgres)
		return db, fence.New(fence.PostgreSQL), err
	}

	// A transaction waits for the transactions of other processes, for up to 10 s.
	db, err := sql.Open("sqlite", "file:"+*file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	return db, fence.New(fence.SQLite), err
}

// newServer returns the server. Its handlers run under a lease on the Idempotency-Key of their request.
func (s *shop) newServer(requests *httplock.Middleware) *http.Server {
	routes := http.NewServeMux()
	routes.Handle("POST /orders/{order}/payments", requests.LockHandler(http.HandlerFunc(s.payNow)))
	routes.Handle("POST /orders/{order}/payments/later", requests.LockHandler(http.HandlerFunc(s.payLater)))

	server := &http.Server{
		Addr:         cmp.Or(os.Getenv("ADDR"), ":8080"),
		Handler:      httplock.Arrived(routes),
		ReadTimeout:  10 * time.Second,
		WriteTimeout: 30 * time.Second,
	}
	server.RegisterOnShutdown(requests.Drain) // requests that wait are answered with 503
	return server
}

// startWorker starts the server of asynq. Its handlers run under a lease on the identity of their task.
func (s *shop) startWorker(locker *core.Locker, queue asynq.RedisConnOpt) (*asynq.Server, error) {
	tasks, err := queuelock.New(locker)
	if err != nil {
		return nil, err
	}

	cfg := asynq.Config{Concurrency: 20, ShutdownTimeout: 20 * time.Second}
	err = tasks.Configure(&cfg) // last, before NewServer
	if err != nil {
		return nil, err
	}

	mux := asynq.NewServeMux()
	mux.Use(tasks.Middleware)
	mux.HandleFunc("pay", s.payTask)
	worker := asynq.NewServer(queue, cfg)
	return worker, worker.Start(mux)
}

// shutDown shuts down the server of asynq, which takes minutes if asynq's Redis does not answer.
func shutDown(ctx context.Context, worker *asynq.Server) error {
	done := make(chan struct{})
	go func() {
		worker.Shutdown()
		close(done)
	}()

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("asynq has not shut down in time")
	}
}
