package core

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// Who has waited for longer than the max TTL keeps its place.
func TestPlaceOfALongWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, early, late := w.process(), w.process(), w.process()
		lease := w.acquire(holder, "k")
		first := acquiring(early.Locker, t.Context(), "k")
		synctest.Wait()
		time.Sleep(2 * early.p.MaxTTL)
		second := acquiring(late.Locker, t.Context(), "k")
		synctest.Wait()
		time.Sleep(3 * time.Second)
		w.release(lease)
		select {
		case got := <-first:
			w.release(got.lease)
			w.release(testutil.Receive(t, second).lease)
		case got := <-second:
			t.Error("who came later was first")
			w.release(got.lease)
			w.release(testutil.Receive(t, first).lease)
		}
	})
}
