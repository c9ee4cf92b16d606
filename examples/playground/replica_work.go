package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/httplock"
)

// hot is the key that all replicas want, all the time.
const hot = "leader-of-the-hour"

// startTurns has the replica take turns with the others, so that there is always something to see.
func (r *replica) startTurns(ctx context.Context) error {
	r.work.Go(func() {
		for ctx.Err() == nil {
			r.turn(ctx, Order{Key: hot, Ms: inMillis(between(250, 600)), WaitMs: inMillis(4 * ttl)})
			stage.Sleep(ctx, between(100, 400))
		}
	})
	return nil
}

// turn takes a key and updates the number of that name.
func (r *replica) turn(ctx context.Context, o Order) {
	r.locks.Do(ctx, o.Key, func(ctx context.Context) error { return r.update(ctx, duration(o.Ms), o.Stubborn) },
		core.Name("turn"), core.MaxWait(duration(o.WaitMs))) // what comes of it is told as it happens
}

// update adds one to the number that the lock of ctx protects: it reads, works, looks whether it still has the lock, and
// writes. Who is stubborn looks first, and works then: a process that is paused between the two is no better.
func (r *replica) update(ctx context.Context, work time.Duration, stubborn bool) error {
	defer r.holdsIn(ctx)()
	lease, _ := core.FromContext(ctx)
	a := access{Key: lease.Key(), Token: lease.FencingToken()}
	value, err := r.store.access(a)
	if err != nil {
		return err
	}
	if stubborn {
		<-time.After(work)
	} else if err := stage.Sleep(ctx, work); err != nil {
		return err
	}
	a.Write, a.Value = true, value+1
	_, err = r.store.access(a)
	return err
}

// startWeb serves updates of counters, under a lock and without.
func (r *replica) startWeb(context.Context) error {
	byID, err := httplock.New(r.locks, service, httplock.WithMaxWait(2*time.Second),
		httplock.ByKey(func(r *http.Request) (string, error) { return "counter " + path.Base(r.URL.Path), nil }))
	if err != nil {
		return err
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.PUT("/counter/:id", byID.Lock, func(c *gin.Context) {
		answer(c, r.update(c.Request.Context(), between(1, 5), false))
	})
	router.PUT("/naive/:id", func(c *gin.Context) { answer(c, r.naive(c.Request.Context(), "counter "+c.Param("id"))) })

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: router, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(byID.Drain)
	r.work.Go(func() { server.Serve(listener) })
	r.stops = append(r.stops, func(ctx context.Context) error {
		return errors.Join(server.Shutdown(ctx), server.Close(), byID.Close(ctx))
	})
	r.say(Event{Kind: isReady, Text: listener.Addr().String()})
	return nil
}

// naive is an update without a lock.
func (r *replica) naive(ctx context.Context, key string) error {
	a := access{Key: key, Naive: true}
	value, err := r.store.access(a)
	if err != nil {
		return err
	}
	if err := stage.Sleep(ctx, between(1, 5)); err != nil {
		return err
	}
	a.Write, a.Value = true, value+1
	_, err = r.store.access(a)
	return err
}

func answer(c *gin.Context, err error) {
	if err != nil {
		c.String(http.StatusServiceUnavailable, "%v", err)
		return
	}
	c.Status(http.StatusOK)
}
