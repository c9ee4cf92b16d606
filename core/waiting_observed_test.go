package core

import (
	"testing"
	"testing/synctest"
	"time"
)

// An observer learns how a wait came to its end: the place in the queue, and what made the call ask again.
func TestObservedWaiting(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		holder, a, b := w.process(), w.process(WithObserver(o)), w.process(WithObserver(o))
		lease := w.holds(holder, "k")
		first, second := w.waits(a, "k"), w.waits(b, "k")
		released := time.Now()
		w.release(lease)
		w.gets(first, released)
		time.Sleep(2 * aTurn) // b asks, in case that a is dead
		for _, n := range w.nodes {
			n.DropMessages(true)
		}
		w.release(first.lease)
		w.gets(second, released)
		w.release(second.lease)
		w.release(w.acquire(a, "free"))
		synctest.Wait()
		_, outs := o.of(t, OpAcquire)
		if out := outs[0]; out.Place != 1 || out.Woken == 0 || out.Polled != 0 || !out.HandedOver {
			t.Errorf("told, as the first: %+v", out)
		}
		if out := outs[1]; out.Place != 2 || out.Polled == 0 || out.HandedOver {
			t.Errorf("not told, as the second: %+v", out)
		}
		if out := outs[2]; out.Place != 0 || out.Woken != 0 || out.Polled != 0 || out.HandedOver {
			t.Errorf("nobody was in the way: %+v", out)
		}
	})
}
