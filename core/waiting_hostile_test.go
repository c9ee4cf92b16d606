package core

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Releases that are sent together notify the waiter, even if one of them is a repetition.
func TestReleasedTwiceInOneBatch(t *testing.T) {
	onNodes(t, []int{3, 5}, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease, busy := w.holds(p, "k"), w.holds(p, "busy")
		c := w.waits(other, "k")
		p.set(coretest.Fate{Delay: time.Millisecond, ReplyDelay: time.Millisecond})
		go busy.Release(t.Context()) // the requests that come while it is under way are sent together
		synctest.Wait()

		var together atomic.Int32
		for _, k := range p.links {
			k.Together = func() { together.Add(1) }
		}
		released := time.Now()
		go lease.Release(t.Context())
		go lease.Release(t.Context())
		took := w.gets(c, released)
		if together.Load() == 0 {
			t.Fatal("not together")
		}
		wantBetween(t, "hand-off", took, 0, 20*time.Millisecond)
		w.release(c.lease)
	})
}

// Waiters are notified even if the key prefix contains a blank.
func TestPrefixWithABlank(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(WithKeyPrefix("my app:")), w.process(WithKeyPrefix("my app:"))
		lease := w.holds(holder, "k")
		c := w.waits(p, "k")
		w.handsOff(lease, c, 0, 5*time.Millisecond)
		w.release(c.lease)
	})
}

// panicky is an observer that panics in the calls for which end or node returns true.
type panicky struct {
	end, node func(kind OpKind, r NodeReply) bool
}

func (o *panicky) observer() Observer { return Observer{Start: o.start, Node: o.told} }

func (o *panicky) start(ctx context.Context, op Op) (context.Context, func(Outcome)) {
	return ctx, func(Outcome) {
		if o.end != nil && o.end(op.Kind, NodeReply{}) {
			panic("observer")
		}
	}
}

func (o *panicky) told(_ context.Context, kind OpKind, r NodeReply) {
	if o.node != nil && o.node(kind, r) {
		panic("observer")
	}
}

func quietRelease(lease *Lease) {
	defer func() { recover() }()
	lease.Release(context.Background())
}

// An observer that panics at the end of a hold does not keep the key from others.
func TestObserverPanicsAtTheEndOfAHold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var on atomic.Bool
		o := &panicky{end: func(kind OpKind, _ NodeReply) bool { return kind == OpHold && on.Load() }}
		p := w.process(WithObserver(o.observer()), unrenewed)
		lease := w.holds(p, "k")
		on.Store(true)
		quietRelease(lease)
		on.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next, err := p.Acquire(ctx, "k")
		if err != nil {
			t.Fatalf("the turn is lost: %v", err)
		}
		w.release(next)
	})
}

// The context of a lease ends before its observer is notified, so it does not wait for the observer to return.
func TestEndOfAContextWaitsForNoObserver(t *testing.T) {
	bubbles(t, 3, map[string]func(lease *Lease, p *process){
		"lost":     func(_ *Lease, p *process) { p.set(coretest.Fate{Lose: true}) },
		"released": func(lease *Lease, _ *process) { go lease.Release(context.Background()) },
	}, func(t *testing.T, w *world, end func(lease *Lease, p *process)) {
		told, free := make(chan bool), make(chan bool)
		p := w.process(WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
			return ctx, func(Outcome) {
				if op.Kind == OpHold {
					close(told)
					<-free
				}
			}
		}}))
		lease := w.holds(p, "k")
		end(lease, p)
		<-told
		if lease.Context().Err() == nil {
			t.Error("the observer is told before the context ends")
		}
		close(free)
	})
}

// If an observer panics while a key is handed on, only one caller gets the turn.
func TestObserverPanicsAtAHandOn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var on atomic.Bool
		o := &panicky{node: func(kind OpKind, r NodeReply) bool {
			return kind == OpAcquire && r.Verdict == VerdictCircuitOpen && on.CompareAndSwap(true, false)
		}}
		p := w.process(WithObserver(o.observer()))
		lease := w.holds(p, "k")
		a, b := w.waits(p, "k"), w.waits(p, "k")

		fit := w.unfit(p, 1)
		on.Store(true)
		p.set(coretest.Fate{Delay: 20 * time.Millisecond})
		quietRelease(lease)
		synctest.Wait()
		if on.Load() {
			t.Fatal("it did not panic")
		}
		if waiting := p.inLine("k"); waiting != 1 {
			t.Errorf("%d in line, after one of two was let in", waiting)
		}

		fit()
		a.cancel()
		b.cancel()
		<-a.done
		<-b.done
	})
}

// The release of every attempt that is over reaches a node that was slow to answer, not only the first one.
func TestManyGrantsWithoutAnAnswer(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder := w.process(unrenewed)
		holder.links[2].Set(coretest.Fate{Refuse: true}, wire.OpAcquire)
		keys := []string{"a", "b", "c"}
		for _, key := range keys {
			w.holds(holder, key)
			time.Sleep(time.Second) // until the circuit of node 2 is closed again
		}

		p := w.process()
		p.set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire) // all nodes are asked before the first reply
		p.links[2].Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			if s == wire.OpAcquire {
				return coretest.Fate{LoseReply: true}
			}
			return coretest.Fate{Delay: 20 * time.Millisecond, ReplyDelay: 20 * time.Millisecond}
		})
		for _, key := range keys {
			_, err := p.TryAcquire(t.Context(), key)
			wantErr(t, err, ErrHeld)
			time.Sleep(10 * time.Millisecond)
		}

		granted := 0
		for _, key := range keys {
			if r := w.resource(p, 2, key); r.Expiry != 0 {
				granted++
			}
		}
		if granted < 2 {
			t.Fatal("granted", granted)
		}

		time.Sleep(4 * time.Second)
		for _, key := range keys {
			if r := w.resource(p, 2, key); r.Expiry != 0 {
				t.Errorf("the third node keeps %s: %+v", key, r)
			}
		}
	})
}

// A request that arrives when its attempt is over does not put the call into a queue.
func TestRequestThatComesLateEntersNoQueue(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p, next := w.process(), w.process(), w.process()
		lease := w.holds(holder, "k")
		p.set(coretest.Fate{Delay: 100 * time.Millisecond}, wire.OpAcquire)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		p.Acquire(ctx, "k")
		time.Sleep(500 * time.Millisecond)
		for i := range w.nodes {
			if q := w.queue(p, i, "k"); len(q) > 0 {
				t.Errorf("node %d: %q waits, whose call has ended", i, q)
			}
		}
		c := w.waits(next, "k")
		w.handsOff(lease, c, 0, 5*time.Millisecond)
	})
}
