package core

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A hostileContext panics in Done once it has turned. Package context calls Done when it removes a context that was
// derived from another one, after the derived one has ended.
type hostileContext struct {
	context.Context
	hasTurned atomic.Bool
	calls     atomic.Int64 // after it has turned
}

func (c *hostileContext) Done() <-chan struct{} {
	if c.hasTurned.Load() {
		c.calls.Add(1)
		panic("the context of the application")
	}
	return c.Context.Done()
}

// However a lease ends, if the context given to Acquire panics then, neither the turn of its key nor the lease
// stays behind, and the other leases of the process are renewed.
func TestHostileContextAtTheEndOfALease(t *testing.T) {
	// A grip is a lease, alone or in a set.
	type grip struct {
		lease *Lease
		set   *Leases
	}
	type ending struct {
		acquire func(w *world, p *process, ctx context.Context) grip
		end     func(w *world, g grip)
	}
	lock := func(opts ...CallOption) func(*world, *process, context.Context) grip {
		return func(_ *world, p *process, ctx context.Context) grip {
			return grip{lease: must(p.Acquire(ctx, "a", opts...))}
		}
	}
	lockSet := func(opts ...CallOption) func(*world, *process, context.Context) grip {
		return func(w *world, p *process, ctx context.Context) grip {
			set := must(p.AcquireAll(ctx, []string{"a", "b"}, opts...))
			return grip{set.of(w.t, "a"), set}
		}
	}
	release := func(w *world, g grip) { g.lease.Release(w.t.Context()) }
	passes := func(w *world, _ grip) { w.pass(2 * time.Second) }

	endings := map[string]ending{
		"Release":            {lock(), release},
		"Complete":           {lock(), func(w *world, g grip) { g.lease.Complete(w.t.Context(), nil) }},
		"MaxHold":            {lock(MaxHold(time.Second)), passes},
		"a revocation":       {lock(), func(_ *world, g grip) { g.lease.declareLost(LossRevoked) }},
		"Release of a set":   {lockSet(), func(w *world, g grip) { g.set.Release(w.t.Context()) }},
		"Release of one key": {lockSet(), release},
		"MaxHold of a set":   {lockSet(MaxHold(time.Second)), passes},
	}
	for name, c := range endings {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			p := w.process()
			hostile := &hostileContext{Context: t.Context()}
			bystander := w.acquire(p, "c")
			held := c.acquire(w, p, hostile)
			synctest.Wait() // all nodes have answered

			hostile.hasTurned.Store(true)
			c.end(w, held)
			w.pass(time.Minute)
			if hostile.calls.Load() == 0 {
				t.Error("the context was not asked")
			}
			if err := held.lease.Context().Err(); err == nil {
				t.Error("the context of the lease is live")
			}
			if err := bystander.Context().Err(); err != nil {
				t.Errorf("another lease has ended: %v", context.Cause(bystander.Context()))
			}

			w.release(bystander)
			synctest.Wait()
			p.wantNothingLeft(t)
			w.wantHeldKeys(w.process(), "")
		})
	}
}

// If the context given to Acquire panics when the lease is released, the key is released all the same.
func TestReleaseDespiteAPanicOfTheContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		hostile := &hostileContext{Context: t.Context()}
		lease := must(p.Acquire(hostile, "a"))
		synctest.Wait()

		hostile.hasTurned.Store(true)
		succeeds(t, lease.Release(t.Context()))
		w.release(w.acquire(p, "a"))
	})
}
