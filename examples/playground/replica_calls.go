package main

import (
	"context"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

const (
	api     = "payments-api" // the key of a semaphore
	permits = 2              // the API allows two calls at a time, of all replicas together
	callers = 2              // in each replica: six callers want two permits
)

// startCalls has the replica call an API that allows few calls at a time.
func (r *replica) startCalls(ctx context.Context) error {
	limit, err := semaphore.New(r.locks, permits)
	if err != nil {
		return err
	}
	for range callers {
		r.work.Go(func() {
			for ctx.Err() == nil {
				limit.Do(ctx, api, r.call, core.Name("call"), core.MaxWait(4*ttl)) // the observer reports errors
				stage.Sleep(ctx, between(300, 900))
			}
		})
	}
	return nil
}

// call is a call of the API, under a permit.
func (r *replica) call(ctx context.Context) error {
	permit, _ := semaphore.FromContext(ctx)
	end := r.holds(permit.SlotKey(), Event{Key: api, Slot: new(permit.Slot()), Token: permit.FencingToken()}, permit)
	over := sync.OnceFunc(func() { end(permit.Lost()) })
	defer over()
	context.AfterFunc(permit.Context(), over) // reports a loss at once
	return stage.Sleep(ctx, between(250, 700))
}
