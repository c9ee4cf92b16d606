package core

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A node that has not answered yet when it is clear that others hold the key.

// It is told nothing if it answers that it did not grant the key, either.
func TestRefusalThatComesLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.holds(w.process(unrenewed), "k")
		p := w.process()
		released := p.counting(wire.OpRelease)
		p.links[2].Set(coretest.Fate{ReplyDelay: 20 * time.Millisecond}, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		time.Sleep(time.Minute)
		if n := released.Load(); n > 0 {
			t.Errorf("%d releases of what was granted nowhere", n)
		}
	})
}

// If it granted the key, it is told at once that the attempt is over.
func TestGrantThatComesLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder := w.process(unrenewed)
		holder.links[2].Set(coretest.Fate{Refuse: true}, wire.OpAcquire)
		w.holds(holder, "k")
		p := w.process()
		p.set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire) // all have been asked by then
		p.links[2].Set(coretest.Fate{ReplyDelay: 20 * time.Millisecond}, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		synctest.Wait()
		if w.resource(p, 2, "k").Expiry == 0 {
			t.Fatal("the third node did not grant it")
		}
		w.pass(20 * time.Millisecond)
		if r := w.resource(p, 2, "k"); r.Expiry != 0 {
			t.Errorf("the third node keeps it: %+v", r)
		}
	})
}

// If it does not answer, it is told after the node timeout: the request may arrive yet.
func TestGrantWithoutAnAnswer(t *testing.T) {
	bubbles(t, 3, map[string]coretest.Fate{
		"arrived":   {LoseReply: true},
		"under way": {Delay: time.Second},
	}, func(t *testing.T, w *world, f coretest.Fate) {
		holder := w.process(unrenewed)
		holder.links[2].Set(coretest.Fate{Refuse: true}, wire.OpAcquire)
		w.holds(holder, "k")
		p := w.process()
		p.set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire)
		p.links[2].Set(f, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		time.Sleep(3 * time.Second)
		if r := w.resource(p, 2, "k"); r.Expiry != 0 {
			t.Errorf("the third node keeps it: %+v", r)
		}
	})
}
