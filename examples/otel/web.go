package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/httplock"
)

// A web is an HTTP server, reached without a network.
type web struct{ handler http.Handler }

// startWeb serves routes of which one request runs per order.
func (r *replica) startWeb() error {
	byID, err := httplock.New(r.locks, "orders", httplock.ByParam("id"), httplock.WithIdempotency(false, httplock.NoSender), httplock.WithMaxWait(700*time.Millisecond))
	if err != nil {
		return err
	}
	r.stops = append(r.stops, func() error { return byID.Close(context.Background()) })
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery(), r.tracedRoute)
	update := func(c *gin.Context) {
		if stage.Sleep(c.Request.Context(), time.Duration(20+rand.IntN(150))*time.Millisecond) == nil {
			c.String(http.StatusOK, "updated")
		}
	}
	router.PUT("/orders/:id", byID.Lock, update)
	router.POST("/orders/:id/payments", byID.Lock, update)
	r.web = &web{router}
	return nil
}

// tracedRoute gives each request a span, as instrumentation of gin does.
func (r *replica) tracedRoute(c *gin.Context) {
	ctx, span := r.tracer.Start(c.Request.Context(), c.Request.Method+" "+c.FullPath())
	defer span.End()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
}

// clients send requests: updates of few orders, and payments of which each is sent twice.
func (r *replica) clients(ctx context.Context) {
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for n := 0; stage.Sleep(ctx, time.Duration(rand.IntN(300))*time.Millisecond) == nil; n++ {
				if i == 0 {
					r.web.send(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/payments", n/2), fmt.Sprintf("%s-%d", r.name, n/2))
				} else {
					r.web.send(ctx, http.MethodPut, fmt.Sprintf("/orders/%d", rand.IntN(3)), "")
				}
			}
		})
	}
	all.Wait()
}

func (w *web) send(ctx context.Context, method, path, idempotencyKey string) {
	req := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(nil))
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", `"`+idempotencyKey+`"`)
	}
	w.handler.ServeHTTP(httptest.NewRecorder(), req)
}
