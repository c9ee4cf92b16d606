package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// These tests are about a release that is sent in one batch with the request of the next caller of its process.

// A hand-off inside a process takes one round trip and one batch for each node.
func TestHandOnInOneRoundTrip(t *testing.T) {
	onNodes(t, []int{1, 3, 5}, func(t *testing.T, w *world) {
		const oneWay = 5 * time.Millisecond
		p := w.process()
		lease := w.holds(p, "k")
		c := w.waits(p, "k")
		p.set(coretest.Fate{Delay: oneWay, ReplyDelay: oneWay})

		before := w.requests()
		released := time.Now()
		go lease.Release(t.Context())
		wantBetween(t, "hand-off", w.gets(c, released), 2*oneWay, 2*oneWay)

		synctest.Wait()
		if n := w.requests() - before; n > len(w.nodes) {
			t.Errorf("%d batches for one hand-off", n)
		}
		if c.lease.FencingToken() <= lease.FencingToken() {
			t.Errorf("token %d after %d", c.lease.FencingToken(), lease.FencingToken())
		}
		w.release(c.lease)
	})
}

// A waiter of another process comes first if it began to wait earlier.
func TestHandOnGivesWay(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.holds(p, "k")
		first := w.waits(other, "k")
		second := w.waits(p, "k")
		third := w.waits(w.process(), "k")
		fourth := w.waits(p, "k")
		for _, next := range []*caller{first, second, third, fourth} {
			w.handsOff(lease, next, 0, queue.NotifyWindow+time.Millisecond) // p has just begun to listen
			lease = next.lease
		}
		w.release(lease)
	})
}

// A hand-off inside a process wakes no waiter of another process, because that waiter would ask in vain.
func TestHandOnWakesNobody(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.holds(p, "k")
		second := w.waits(p, "k")
		third := w.waits(other, "k")
		asked := other.counting(wire.OpAcquire)
		w.handsOff(lease, second, 0, time.Millisecond)
		time.Sleep(2 * aTurn)
		if n := asked.Load(); n > 0 {
			t.Errorf("asked %d times while nothing was free", n)
		}
		w.handsOff(second.lease, third, 0, time.Millisecond)
		w.release(third.lease)
	})
}

// If the next caller leaves at the moment of the hand-off, nothing of it stays on the nodes, and the caller after it
// gets the key.
func TestHandOnToOneWhoLeaves(t *testing.T) {
	for name, leave := range map[string]func(p *process, next *caller){
		"cancelled":      func(_ *process, next *caller) { next.cancel() },
		"closing":        func(p *process, _ *caller) { go p.Close(context.Background()) },
		"cancelled late": func(_ *process, next *caller) { time.AfterFunc(time.Millisecond, next.cancel) },
		"closing late": func(p *process, _ *caller) {
			time.AfterFunc(time.Millisecond, func() { p.Close(context.Background()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
				p, other := w.process(), w.process()
				lease := w.holds(p, "k")
				next := w.waits(p, "k")
				after := w.waits(other, "k")
				p.set(coretest.Fate{Delay: 2 * time.Millisecond, ReplyDelay: 2 * time.Millisecond})

				released := time.Now()
				go lease.Release(t.Context())
				leave(p, next)

				<-next.done
				if next.err == nil {
					t.Error("it has a lease")
				}
				wantBetween(t, "hand-off", w.gets(after, released), 0, 20*time.Millisecond)
				w.release(after.lease)

				p.Close(context.Background())
				synctest.Wait()
				for i := range w.nodes {
					if q := w.queue(p, i, "k"); len(q) > 0 {
						t.Errorf("still waits on node %d: %q", i, q)
					}
				}
			})
		})
	}
}

// If the messages of a hand-off are lost, the next caller asks again.
func TestHandOnThatIsLost(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		p := w.process(TTL(3 * time.Second))
		lease := w.holds(p, "k")
		next := w.waits(p, "k")
		p.set(coretest.Fate{Lose: true})
		go lease.Release(t.Context())
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		p.set(coretest.Fate{})
		lost := time.Now()
		wantBetween(t, "hand-off", w.gets(next, lost), 0, 4*time.Second)
		w.release(next.lease)
	})
}
