package core

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// A process keeps its subscriptions while a call waits, and a little longer.
func TestListensWhileSomebodyWaits(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		calls := func(command string) (n int) {
			for _, node := range w.nodes {
				n += node.Calls()[command]
			}
			return n
		}
		atStart := calls("SUBSCRIBE") // New tries one on each node
		for round := range 2 {
			lease := w.holds(holder, "k")
			c := w.waits(p, "k")
			time.Sleep(time.Duration(round)*queue.MaxSilence + queue.MaxSilence/2)
			w.handsOff(lease, c, 0, time.Millisecond)
			if n := calls("SUBSCRIBE") - atStart; n != (round+1)*len(w.nodes) {
				t.Errorf("subscribed %d times by round %d", n, round)
			}

			w.release(c.lease)
			w.pass(2*queue.MaxSilence + time.Second)
			if n := entries(&p.e.board, "waiters").Len(); n > 0 {
				t.Errorf("%d calls wait", n)
			}

			before := calls("PING")
			time.Sleep(5 * queue.MaxSilence)
			if n := calls("PING") - before; n > 0 {
				t.Errorf("pinged %d times while nobody waits", n)
			}
		}
	})
}

// If the connection of a subscription is silently dead, the process subscribes again. That holds before and after the
// confirmation of the subscription.
func TestSilentSubscription(t *testing.T) {
	type row struct {
		action testutil.Action // for the first SUBSCRIBE
		hangs  bool            // the node hangs after the subscription
		after  time.Duration
	}
	bubbles(t, 3, map[string]row{
		"request lost": {action: testutil.Action{DropRequest: true}, after: queue.MaxSilence},
		"reply lost":   {action: testutil.Action{DropReply: true}, after: queue.MaxSilence},
		"hung":         {hangs: true, after: 2 * queue.MaxSilence},
	}, func(t *testing.T, w *world, c row) {
		subscribed := 0
		lease, p := w.holds(w.process(), "k"), w.process()
		n := w.nodes[2]
		n.OnRequest(func(args []string) testutil.Action {
			if args[0] == "SUBSCRIBE" {
				if subscribed++; subscribed == 1 {
					return c.action
				}
			}
			return testutil.Action{}
		})

		waiter := w.waits(p, "k")
		if c.hangs {
			n.Hang()
		}

		time.Sleep(c.after + queue.ResubscribeMax)
		n.Up()
		w.pass(queue.ResubscribeMax)
		if subscribed != 2 {
			t.Errorf("it was asked %d times for a subscription", subscribed)
		}
		w.handsOff(lease, waiter, 0, queue.NotifyWindow)
	})
}

// A node that is away is not asked again for a subscription that no call needs any more.
func TestSubscriptionThatNobodyNeeds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lease, c := w.waited()
		w.handsOff(lease, c, 0, time.Second)
		w.release(c.lease)
		w.nodes[2].Down()
		w.pass(10 * queue.MaxSilence)
		if n := entries(&c.p.e.board, "subscribed").Len(); n != 0 {
			t.Errorf("%d subscriptions for nobody", n)
		}
		w.nodes[2].Up()
	})
}

// A node that revokes the right to subscribe is unfit until it grants the right again.
func TestSubscriptionThatIsDenied(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		lease, waiter := w.waited(WithLogger(log.Logger()))

		w.nodes[2].Refuse("SUBSCRIBE", "NOPERM No permissions to access a channel")
		w.nodes[2].BreakSubscriptions()
		w.pass(queue.ResubscribeMax)
		log.Want(t, 1, "level=ERROR", "unfit", "node=2", "add &lockkit:* to its ACL")
		w.pass(5 * node.RecheckEvery)
		log.Want(t, 1, "unfit")

		w.nodes[2].Refuse("SUBSCRIBE", "")
		w.pass(node.RecheckEvery)
		log.Want(t, 1, "takes part again", "node=2")
		w.handsOff(lease, waiter, 0, queue.NotifyWindow)
	})
}
