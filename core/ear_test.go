package core

import (
	"testing"
	"testing/synctest"
	"time"
)

// A process listens for as long as somebody waits, and a little longer.
func TestListensWhileSomebodyWaits(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		calls := func(command string) (n int) {
			for _, node := range w.nodes {
				n += node.Calls()[command]
			}
			return n
		}
		for round := range 2 {
			lease := w.holds(holder, "k")
			c := w.waits(p, "k")
			time.Sleep(time.Duration(round)*silentFor + silentFor/2)
			w.handsOff(lease, c, 0, time.Millisecond)
			if n := calls("SUBSCRIBE"); n != (round+1)*len(w.nodes) {
				t.Errorf("subscribed %d times by round %d", n, round)
			}
			w.release(c.lease)
			time.Sleep(2*silentFor + time.Second)
			synctest.Wait()
			if n := len(p.e.waits.byName); n > 0 {
				t.Errorf("%d calls wait", n)
			}
			before := calls("PING")
			time.Sleep(5 * silentFor)
			if n := calls("PING") - before; n > 0 {
				t.Errorf("pinged %d times while nobody waits", n)
			}
		}
	})
}
