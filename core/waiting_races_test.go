package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

// This file tests faults at each moment of a hand-off between processes, and waiters with different options.

// Whenever subscriptions break, a waiter gets the key: when a subscription is restored, or by polling.
func TestSubscriptionDroppedAtEveryPoint(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		const oneWay = 200 * time.Microsecond
		holder := w.process()
		for at := time.Duration(0); at < 12*oneWay; at += oneWay / 2 {
			key := fmt.Sprint("key ", at)
			lease := w.holds(holder, key)
			p := w.process()
			p.set(coretest.Fate{Delay: oneWay, ReplyDelay: oneWay})
			began := time.Now()
			time.AfterFunc(at, func() {
				for _, n := range w.nodes {
					n.BreakSubscriptions()
				}
			})
			time.AfterFunc(5*oneWay, func() { lease.Release(t.Context()) })
			c := w.waits(p, key)
			wantBetween(t, "broken after "+at.String(), w.gets(c, began), 0, queue.FallbackMax+5*time.Millisecond)
			w.release(c.lease)
			p.Close(t.Context())
		}
	})
}

// If the first waiter dies when it is granted the key, the second gets the key soon after that lease runs out, or
// earlier. If the first waiter only pauses, it gets the key, and the second gets it next.
func TestHeadStopsAtTheGrant(t *testing.T) {
	for name, c := range map[string]struct {
		stops       func(head *process)
		least, most time.Duration
	}{
		"dies after asking": {func(p *process) {
			p.set(coretest.Fate{LoseReply: true}, wire.OpAcquire)
			p.set(coretest.Fate{Lose: true}, wire.OpRelease, wire.OpRenew)
		}, queue.TurnTime, 3*time.Second + aTurn + time.Second},
		"pauses": {func(p *process) { p.set(coretest.Fate{ReplyDelay: 100 * time.Millisecond}, wire.OpAcquire) }, 100 * time.Millisecond, 101*time.Millisecond + aTurn},
	} {
		t.Run(name, func(t *testing.T) {
			onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
				lease, first, second := w.headAndNext()
				c.stops(first.p)
				released := time.Now()
				w.release(lease)
				go func() {
					if <-first.done; first.lease != nil {
						first.lease.Release(t.Context())
					}
				}()
				wantBetween(t, "hand-off", w.gets(second, released), c.least, c.most)
				wantNotBoth(t, first.lease, second.lease)
				w.release(second.lease)
				first.cancel()
			})
		})
	}

	t.Run("dies", func(t *testing.T) {
		onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
			lease, first, second := w.headAndNext()
			released := time.Now()
			w.release(lease)
			w.gets(first, released)
			first.p.cut()
			wantBetween(t, "hand-off", w.gets(second, released), 3*time.Second, 3*time.Second+aTurn+10*time.Millisecond)
			wantNotBoth(t, first.lease, second.lease)
			w.release(second.lease)
			first.cancel()
		})
	})
}

// headAndNext returns a lease, and two callers that wait for its key. The first caller asks for a lease of 3s.
func (w *world) headAndNext() (lease *Lease, head, next *caller) {
	w.t.Helper()
	holder, p, other := w.process(), w.process(TTL(3*time.Second)), w.process()
	lease = w.holds(holder, "k")
	return lease, w.waits(p, "k"), w.waits(other, "k")
}

// Waiters whose Lockers have different options are in one queue.
func TestWaitersThatAreNotAlike(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder := w.process(TTL(5 * time.Second))
		lease := w.holds(holder, "k")
		var callers []*caller
		for _, opts := range [][]Option{
			{TTL(3 * time.Second)}, {unrenewed}, {MaxWait(time.Minute)}, {MaxHold(4 * time.Second)},
			{Detached(true), MaxWait(time.Minute)}, {withRetryDelay(time.Millisecond, 2*time.Millisecond)},
		} {
			callers = append(callers, w.waits(w.process(opts...), "k"))
		}
		time.Sleep(7 * time.Second) // longer than some of their TTLs

		for i, c := range callers {
			released := time.Now()
			w.release(lease)
			wantBetween(t, fmt.Sprint("hand-off to caller ", i), w.gets(c, released), 0, time.Millisecond)
			lease = c.lease
			time.Sleep(2 * aTurn)
		}
		w.release(lease)
	})
}

// If the queues of the nodes differ, every waiter still gets the key. Each hand-off takes at most all turns and one
// more.
func TestQueuesThatDiffer(t *testing.T) {
	race.SkipSweep(t)
	onNodes(t, []int{2, 3, 4, 5}, func(t *testing.T, w *world) {
		holder := w.process()
		lease := w.holds(holder, "k")
		var callers []*caller
		for i := range 6 {
			p := w.process()
			for n, link := range p.links { // of three or more nodes, one does not have this caller in its queue
				if n == i%len(p.links) && len(p.links) > 2 {
					link.Set(coretest.Fate{Refuse: true}, wire.OpAcquire)
				}
			}
			callers = append(callers, w.waits(p, "k"))
			p.mend()
		}

		for i := range w.nodes {
			if len(w.nodes) > 2 && len(w.queue(holder, i, "k")) == len(callers) {
				t.Fatalf("node %d knows everybody", i)
			}
		}

		done := make(chan *caller, len(callers))
		for _, c := range callers {
			go func() { <-c.done; done <- c }()
		}
		for range callers {
			released := time.Now()
			w.release(lease)
			c := <-done
			wantBetween(t, "hand-off", w.gets(c, released), 0, (ahead+1)*queue.TurnTime)
			lease = c.lease
		}
		w.release(lease)
		synctest.Wait()
	})
}

// A call that is refused or gives up reports a held key: the observer learns that the key was contended, and the error
// of a call that gives up has the answers of the nodes.
func TestObservedRefusals(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		p := w.process(WithObserver(o.observer()))
		w.holds(w.process(), "k")
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(errors.New("the user left")) })
		_, err = p.Acquire(ctx, "k")
		wantErr(t, err, context.Canceled)
		if op, _ := errors.AsType[*OpError](err); op.RetryAfter != 0 || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "context canceled: the user left: node ") {
			t.Errorf("a caller that gave up is told %q, to retry after %v", err, op.RetryAfter)
		}
		synctest.Wait()
		_, outs := o.of(t, OpAcquire)
		if len(outs) != 2 || !outs[0].Contended || !outs[1].Contended {
			t.Errorf("refused, and waited in vain: %+v", outs)
		}
	})
}
