package core

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// Steps and checks that schedules share.

// await is acquire that waits until the key is free.
func (w *world) await(p *process, key string, opts ...CallOption) *Lease {
	w.t.Helper()
	return w.awaitUnder(w.t.Context(), p, key, opts...)
}

// awaitUnder is await for a lease that ends with ctx.
func (w *world) awaitUnder(ctx context.Context, p *process, key string, opts ...CallOption) *Lease {
	w.t.Helper()
	lease, err := p.Acquire(ctx, key, opts...)
	if err != nil {
		w.t.Fatalf("never granted: %v", err)
	}
	return lease
}

// A tryResult is what TryAcquire returned.
type tryResult struct {
	lease *Lease
	err   error
}

// trying begins TryAcquire and returns where its result will be.
func trying(l *Locker, ctx context.Context, key string) <-chan tryResult {
	done := make(chan tryResult, 1)
	go func() {
		lease, err := l.TryAcquire(ctx, key)
		done <- tryResult{lease, err}
	}()
	return done
}

// newLease makes an attempt as Acquire makes it.
func (l *Locker) newLease(ctx context.Context, key string) *Lease {
	c := call{e: l.e, p: &l.p, key: key, resource: l.e.Keys.Resource(key), parent: ctx, tryOnly: true}
	return c.newAttempt().lease
}

// renewalNow is a renewal as the watchdog makes it.
func (lease *Lease) renewalNow() *renewal {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	return lease.beginRenewal()
}

// renew starts a renewal, whether it is due or not.
func (lease *Lease) renew() { lease.renewalNow().start() }

// stopTimers has the watchdog of p miss all that is due, as in a process that is paused.
func (p *process) stopTimers() {
	p.e.watchdog.mu.Lock()
	defer p.e.watchdog.mu.Unlock()
	p.e.watchdog.timer.Stop()
}

// setCounter writes the fencing counter of key on node i by hand.
func (w *world) setCounter(p *process, i int, key string, to int64) {
	w.t.Helper()
	w.change(p, i, key, func(r *testutil.Resource) { r.Counter = to })
}

// refusedUntilOver checks that p, which asks again and again, is not granted the key of lease while that is valid.
func (w *world) refusedUntilOver(p *process, lease *Lease, pause time.Duration) {
	w.t.Helper()
	for lease.Context().Err() == nil {
		if _, err := p.TryAcquire(w.t.Context(), lease.Key()); err == nil {
			w.t.Fatalf("a second holder, while the first is valid for another %v", time.Until(lease.ValidUntil()))
		}
		time.Sleep(pause)
	}
}

// wantFree checks that nobody owns key on these nodes, or on any when none is named.
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

// wantNothingLeft checks that p has forgotten all calls and leases.
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

// entries is a map inside of what v points to, which nobody touches meanwhile.
func entries(v any, field string) reflect.Value { return reflect.ValueOf(v).Elem().FieldByName(field) }

// inLine is how many of p stand in line for a key, while none comes or goes.
func (p *process) inLine(key string) int {
	line := entries(p.e.localQueue, "queues").MapIndex(reflect.ValueOf(p.e.Keys.Resource(key)))
	return line.FieldByName("waiters").Len()
}

// succeeds ends the test where a step of it has failed.
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

// wantNotBoth checks that one of two leases at the most is valid; nil is none.
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

// withoutQueue has node i take nobody into the queue of key.
func (w *world) withoutQueue(i int, key string) {
	w.t.Helper()
	if _, err := w.nodes[i].Exec("SET", "lockkit:{0}w:"+key, "not a queue"); err != nil {
		w.t.Fatal(err)
	}
}
