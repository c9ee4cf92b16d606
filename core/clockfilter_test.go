package core

import (
	"testing"
	"testing/synctest"
	"time"
)

// The offset of this process's clock is that of the middle node, whatever a single one says.
func TestClockOffset(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.nodes[0].StepClock(300 * time.Millisecond)
		w.nodes[1].StepClock(200 * time.Millisecond)
		w.nodes[2].StepClock(-time.Hour)
		w.release(w.holds(p, "k"))
		synctest.Wait()
		offset, ok := p.ClockOffset()
		if want := 200 * time.Millisecond; !ok || offset != want {
			t.Errorf("offset %v, %v, want %v", offset, ok, want)
		}
		for _, n := range w.nodes[:2] { // what was known of their clocks counts no more
			n.StepClock(-200 * time.Millisecond)
		}
		w.release(w.holds(p, "k"))
		synctest.Wait()
		if offset, _ := p.ClockOffset(); offset != 0 {
			t.Errorf("offset %v after the clocks were set", offset)
		}
	})
}
