package core

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// This file has steps and checks that many tests share.

// await acquires a key, and waits until the key is free.
func (w *world) await(p *process, key string, opts ...CallOption) *Lease {
	w.t.Helper()
	return w.awaitUnder(w.t.Context(), p, key, opts...)
}

// awaitUnder acquires a key as await does. The lease ends with ctx.
func (w *world) awaitUnder(ctx context.Context, p *process, key string, opts ...CallOption) *Lease {
	w.t.Helper()
	lease, err := p.Acquire(ctx, key, opts...)
	if err != nil {
		w.t.Fatalf("never granted: %v", err)
	}
	return lease
}

// A tryResult is the result of TryAcquire.
type tryResult struct {
	lease *Lease
	err   error
}

// trying starts TryAcquire, and returns a channel that receives its result.
func trying(l *Locker, ctx context.Context, key string) <-chan tryResult {
	done := make(chan tryResult, 1)
	go func() {
		lease, err := l.TryAcquire(ctx, key)
		done <- tryResult{lease, err}
	}()
	return done
}

// newLease makes an attempt as TryAcquire does, and returns its lease.
func (l *Locker) newLease(ctx context.Context, key string) *Lease {
	c := call{e: l.e, p: &l.p, key: key, resource: l.e.Keys.Resource(key), parent: ctx, tryOnly: true}
	return c.newAttempt().lease
}

// renewalNow makes a renewal as the watchdog does, without sending it.
func (lease *Lease) renewalNow() *renewal {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	return lease.beginRenewal()
}

// renew sends a renewal, even if none is due.
func (lease *Lease) renew() { lease.renewalNow().start() }

// stopTimers stops the timer of p's watchdog, as if the process were paused.
func (p *process) stopTimers() {
	p.e.watchdog.mu.Lock()
	defer p.e.watchdog.mu.Unlock()
	p.e.watchdog.timer.Stop()
}

// setCounter sets the fencing counter of key on node i.
func (w *world) setCounter(p *process, i int, key string, to int64) {
	w.t.Helper()
	w.change(p, i, key, func(r *testutil.Resource) { r.Counter = to })
}

// refusedUntilOver repeats TryAcquire of p for the lease's key, and checks that it fails while the lease is valid.
func (w *world) refusedUntilOver(p *process, lease *Lease, pause time.Duration) {
	w.t.Helper()
	for lease.Context().Err() == nil {
		if _, err := p.TryAcquire(w.t.Context(), lease.Key()); err == nil {
			w.t.Fatalf("a second holder, while the first is valid for another %v", time.Until(lease.ValidUntil()))
		}
		time.Sleep(pause)
	}
}

// wantFree checks that key has no owner on these nodes, or on all nodes if none is given.
func (w *world) wantFree(p *process, key string, nodes ...int) {
	w.t.Helper()
	if len(nodes) == 0 {
		for i := range w.nodes {
			nodes = append(nodes, i)
		}
	}
	for _, i := range nodes {
		if owner := w.owner(p, i, key); owner != "" {
			w.t.Fatalf("%q on node %d is held by %s, want by nobody", key, i, owner)
		}
	}
}

// wantNothingLeft checks that p keeps no turns, no waiters and no leases.
func (p *process) wantNothingLeft(t *testing.T) {
	t.Helper()
	e := p.e
	if n := entries(e.localQueue, "queues").Len(); n > 0 {
		t.Errorf("%d turns are left", n)
	}
	if n := entries(&e.board, "waiters").Len(); n > 0 {
		t.Errorf("%d waits are left", n)
	}
	e.watchdog.mu.Lock()
	if n := len(e.watchdog.leases); n > 0 {
		t.Errorf("%d leases are left with the watchdog", n)
	}
	e.watchdog.mu.Unlock()
}

// entries returns a field of the struct that v points to. No other goroutine may use the field meanwhile.
func entries(v any, field string) reflect.Value { return reflect.ValueOf(v).Elem().FieldByName(field) }

// inLine returns the number of calls of p that wait in its local queue for a key. No call may join or leave meanwhile.
func (p *process) inLine(key string) int {
	line := entries(p.e.localQueue, "queues").MapIndex(reflect.ValueOf(p.e.Keys.Resource(key)))
	return line.FieldByName("waiters").Len()
}

// succeeds ends the test if err is not nil.
func succeeds(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantValid(t *testing.T, lease *Lease) {
	t.Helper()
	if lease.Context().Err() != nil {
		t.Fatalf("the lease has ended: %v", context.Cause(lease.Context()))
	}
}

// wantNotBoth checks that at most one of two leases is valid. A lease may be nil.
func wantNotBoth(t *testing.T, one, other *Lease) {
	t.Helper()
	if one != nil && other != nil && one.Context().Err() == nil && other.Context().Err() == nil {
		t.Fatal("two holders")
	}
}

func wantLaterToken(t *testing.T, later, earlier *Lease) {
	t.Helper()
	if later.FencingToken() <= earlier.FencingToken() {
		t.Fatalf("token %d after %d", later.FencingToken(), earlier.FencingToken())
	}
}

// withoutQueue keeps node i from queueing waiters for key: a text is stored in place of the queue.
func (w *world) withoutQueue(i int, key string) {
	w.t.Helper()
	if _, err := w.nodes[i].Exec("SET", "lockkit:{0}w:"+key, "not a queue"); err != nil {
		w.t.Fatal(err)
	}
}
