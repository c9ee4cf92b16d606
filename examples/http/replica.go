package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/newnodes"
	"github.com/lockkit/lockkit/httplock"
)

const (
	nodesEnv = "LOCKKIT_HTTP_NODES" // makes a process a replica
	storeEnv = "LOCKKIT_HTTP_STORE"
)

// replica is a server as one would deploy it. It prints its address, and ends when it is dismissed.
func replica(dismissed <-chan struct{}) (err error) {
	ctx := context.Background()
	locks, err := core.Open(strings.Split(os.Getenv(nodesEnv), ","))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }()
	if err := newnodes.Declare(ctx, locks); err != nil { // these nodes are new; otherwise not the business of a server
		return err
	}
	byID, err := httplock.New(locks, "orders", httplock.ByParam("id"),
		httplock.WithMaxWait(2*time.Second), httplock.WithMaxWaiters(6))
	if err != nil {
		return err
	}

	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.Recovery(), arrival)
	store := remote(os.Getenv(storeEnv))
	r.PUT("/orders/:id", byID.Lock, update(store))
	r.PUT("/unlocked/:id", update(store))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: r}
	server.RegisterOnShutdown(byID.Drain)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Println(listener.Addr())

	select {
	case err := <-served:
		return err
	case <-dismissed:
	}
	shutdown, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(shutdown), byID.Close(shutdown))
}

const waitedHeader = "X-Waited-Microseconds"

// arrival notes when a request came.
func arrival(c *gin.Context) {
	c.Set("arrival", time.Now())
	c.Next()
}

// update adds one to an order: it reads, works, and writes. That is right only if no other request does so meanwhile.
func update(store remote) gin.HandlerFunc {
	return func(c *gin.Context) {
		waited := time.Since(c.GetTime("arrival"))
		c.Header(waitedHeader, strconv.FormatInt(waited.Microseconds(), 10))
		value, err := store.read(c.Param("id"))
		if err == nil {
			time.Sleep(time.Duration(1+rand.IntN(4)) * time.Millisecond) //nolint:forbidigo // the work
			err = context.Cause(c.Request.Context())                     // ended if the lock was lost
		}
		if err == nil {
			err = store.write(c.Param("id"), value+1)
		}
		if err != nil {
			c.String(http.StatusInternalServerError, "%v", err)
			return
		}
		c.String(http.StatusOK, "%d", value+1)
	}
}
