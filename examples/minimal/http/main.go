// Http serves orders that one request at a time changes, and payments that are made once, on however many replicas. It is
// to be copied.
//
//	export LOCKKIT_NODES=redis://localhost:6379   # or several, with commas
//	go run ./examples/minimal/http
//	curl -X POST -H 'Idempotency-Key: "a-uuid"' localhost:8080/orders/42/payments   # twice, also at another replica's port
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

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := run(ctx); err != nil {
		slog.Error("server failed", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nodes := os.Getenv("LOCKKIT_NODES")
	if nodes == "" {
		return errors.New("LOCKKIT_NODES is not set; one Redis will do: LOCKKIT_NODES=redis://localhost:6379")
	}
	locker, err := core.Open(strings.Split(nodes, ","))
	if err != nil {
		return err // names every unfit node, and how to fix it
	}
	byID, err := httplock.New(locker, "shop", httplock.ByParam("id"), httplock.WithIdempotency(false, httplock.NoSender)) // or who sends it
	if err != nil {
		return err
	}
	r := gin.Default() // authentication goes here, before the locks
	r.PUT("/orders/:id", byID.Lock, update)
	r.POST("/orders/:id/payments", byID.Lock, pay)

	server := &http.Server{Addr: cmp.Or(os.Getenv("ADDR"), ":8080"), Handler: httplock.Arrived(r), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	server.RegisterOnShutdown(byID.Drain) // requests that wait are answered with 503
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.Background(), 25*time.Second) // shorter than the deployment waits
	defer cancel()
	return errors.Join(err, server.Shutdown(ending), byID.Close(ending), locker.Close(ending))
}

// update changes an order. The context of the request ends if the lease is lost: hand it to the database.
func update(c *gin.Context) {
	run, _ := httplock.FromContext(c.Request.Context())
	c.JSON(http.StatusOK, gin.H{"order": c.Param("id"), "token": run.FencingToken}) // UPDATE … WHERE token <= $token
}

// pay makes a payment. It runs until an answer is recorded; a repetition, by the Idempotency-Key, then gets that answer.
func pay(c *gin.Context) {
	run, _ := httplock.FromContext(c.Request.Context())
	// Store run.Identity beside the payment, in a column that is UNIQUE. It is empty without an Idempotency-Key.
	c.JSON(http.StatusCreated, gin.H{"order": c.Param("id"), "at": time.Now(), "request": run.Identity})
}
