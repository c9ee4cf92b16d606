package core

import (
	"context"
	"crypto/tls"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Options of a call are for that call.
func TestOptionsOfACall(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		holder, p := w.process(), w.process(WithObserver(o.observer()))
		lease := w.acquire(holder, "k")
		wait, name := MaxWait(3*time.Second), Name("job")
		run := func(context.Context) error { return nil }
		for what, call := range map[string]func() error{
			"Acquire": func() error { _, err := p.Acquire(t.Context(), "k", wait, name); return err },
			"Do":      func() error { return p.Do(t.Context(), "k", run, wait, name) },
			"Once":    func() error { return p.Once(t.Context(), "k", run, wait, name) },
		} {
			began := time.Now()
			wantErr(t, call(), ErrHeld)
			wantBetween(t, what, time.Since(began), 3*time.Second, 3*time.Second)
		}
		wantErr(t, p.TryDo(t.Context(), "k", run, name), ErrHeld)
		w.release(lease)

		short, err := p.TryAcquire(t.Context(), "k", TTL(4*time.Second), FixedLease(true), name)
		if err != nil {
			t.Fatal(err)
		}
		wantBetween(t, "left", short.left(), time.Second, 4*time.Second)
		got := w.await(holder, "k") // nobody renews it
		wantErr(t, short.Lost(), ErrLost)
		w.release(got)

		lease = w.acquire(p, "k") // as the Locker was made
		wantBetween(t, "left", lease.left(), 5*time.Second, p.p.ttl)
		w.release(lease)
		ops, _ := o.of(t, OpAcquire)
		for i, op := range ops {
			if want := "job"; (op.Name == want) != (i < len(ops)-1) {
				t.Errorf("operation %d has the name %q", i, op.Name)
			}
		}
	})
}

// What a policy is derived from, and what may be unfit, must not be taken for quick.
func TestQuickPolicyLeavesNothingOut(t *testing.T) {
	of := policy{config: defaults()}
	quick := map[string]bool{"name": true, "reentrant": true, "detached": true, "repeats": true, "observer": true, "renewWhile": true, "by": true, "unfit": true, "tls": true}
	changes := map[string]func(*config){
		"ttl": func(c *config) { c.ttl++ }, "maxTTL": func(c *config) { c.maxTTL++ }, "renewEvery": func(c *config) { c.renewEvery++ },
		"nodeTimeout": func(c *config) { c.nodeTimeout++ }, "drift": func(c *config) { c.drift /= 2 }, "window": func(c *config) { c.window++ },
		"maxWait": func(c *config) { c.maxWait = -1 }, "maxHold": func(c *config) { c.maxHold = -1 },
		"fixed": func(c *config) { c.fixed = true }, "detached": func(c *config) { c.detached = true },
		"reentrant": func(c *config) { c.reentrant = true },
		"retryMin":  func(c *config) { c.retryMin = 0 }, "retryMax": func(c *config) { c.retryMax = 0 }, "retention": func(c *config) { c.retention = 0 },
		"by": func(c *config) { c.by = "other" }, "unfit": func(c *config) { c.unfit = true },
		"tls":    func(c *config) { c.tls = &tls.Config{} },
		"prefix": func(c *config) { c.prefix = "other" }, "name": func(c *config) { c.name = "other" },
		"shows": func(c *config) { c.shows = strings.Repeat("s", 254) },
		"guard": func(c *config) { c.guard = new(bool) }, "lag": func(c *config) { c.lag++ }, "repeats": func(c *config) { c.repeats = true },
		"observer": func(c *config) { c.observer = (&recording{}).observer() }, "logger": func(c *config) { c.logger = nil }, "nilOptions": func(c *config) { c.nilOptions = 1 },
		"renewWhile": func(c *config) { c.renewWhile = func(context.Context) error { return nil } },
	}
	fields := reflect.TypeFor[config]()
	for field := range fields.Fields() {
		name := field.Name
		change, ok := changes[name]
		if !ok {
			t.Fatalf("the test does not know of %s", name)
		}
		p := of
		if change(&p.config); p.quick(&of.config) != quick[name] {
			t.Errorf("%s is quick: %v", name, !quick[name])
		}
	}
	if p := of; !p.quick(&of.config) {
		t.Error("no change at all is not quick")
	}
}
