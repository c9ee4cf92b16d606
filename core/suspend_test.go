package core

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests processes that stand still, or whose clocks do.

// If the clock of a process stands still, the clocks of the nodes run on. To the process this looks like a step of
// their clocks. Only if a quorum agrees, the lease counts as older than it seems, and is lost.
func TestClockStoodStill(t *testing.T) {
	window := 400 * time.Millisecond
	type row struct {
		nodes  []int
		before time.Duration // the step before the lease: with it, the other step stays inside of the window
		step   time.Duration
		lost   bool
	}
	bubbles(t, 3, map[string]row{
		"all nodes ran ahead":     {[]int{0, 1, 2}, -350 * time.Millisecond, 700 * time.Millisecond, true},
		"by less than the window": {[]int{0, 1, 2}, -200 * time.Millisecond, window - time.Millisecond, false},
		"one node ran ahead":      {[]int{1}, -350 * time.Millisecond, 700 * time.Millisecond, false},
		"all nodes fell behind":   {[]int{0, 1, 2}, 350 * time.Millisecond, -700 * time.Millisecond, false},
	}, func(t *testing.T, w *world, c row) {
		for _, i := range c.nodes {
			w.nodes[i].StepClock(c.before)
		}

		var r recording
		p := w.process(WithClockWindow(window), WithObserver(r.observer()))
		lease := w.acquire(p, "k")
		time.Sleep(15 * time.Second)
		for _, i := range c.nodes {
			w.nodes[i].StepClock(c.step)
		}
		time.Sleep(15 * time.Second)

		if !c.lost {
			if err := lease.Context().Err(); err != nil {
				t.Fatalf("lost: %v", context.Cause(lease.Context()))
			}
			w.release(lease)
			return
		}

		wantReason(t, context.Cause(lease.Context()), LossClock)
		wantReason(t, lease.Release(t.Context()), LossClock)
		_, outs := r.of(t, OpRenew)
		wantReason(t, outs[len(outs)-1].Err, LossClock)
		_, outs = r.of(t, OpHold)
		wantReason(t, outs[0].Err, LossClock)
	})
}

// Two of three nodes are enough to notice that the clock stood still: the third one may be down.
func TestClockStoodStillByTheWordOfAQuorum(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes[:2] {
			n.StepClock(-400 * time.Millisecond)
		}
		p := w.process()
		lease := w.acquire(p, "k")
		time.Sleep(15 * time.Second)
		w.nodes[2].Down()
		for _, n := range w.nodes[:2] {
			n.StepClock(800 * time.Millisecond)
		}
		start := time.Now()
		testutil.Receive(t, lease.Context().Done())
		wantReason(t, context.Cause(lease.Context()), LossClock)
		wantBetween(t, "noticed after", time.Since(start), 0, p.p.renewEvery*11/10)
	})
}

// If a slow message makes the time between two confirmations longer, that is not taken for a clock that stood still.
func TestSlowMessagesAreNoSuspension(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(withNodeTimeout(2 * time.Second))
		lease := w.acquire(p, "k")
		for _, k := range p.links {
			k.Sequence(wire.OpRenew, coretest.Fate{}, coretest.Fate{Delay: 450 * time.Millisecond, ReplyDelay: 900 * time.Millisecond},
				coretest.Fate{}, coretest.Fate{ReplyDelay: 900 * time.Millisecond}, coretest.Fate{Delay: 450 * time.Millisecond}, coretest.Fate{})
		}
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("lost: %v", context.Cause(lease.Context()))
		}
		w.release(lease)
	})
}

// stuckContext is the context of a caller whose Err may block.
type stuckContext struct {
	context.Context
	stuck atomic.Pointer[chan struct{}]
}

func (c *stuckContext) Err() error {
	if stuck := c.stuck.Load(); stuck != nil {
		<-*stuck
	}
	return c.Context.Err()
}

// If a goroutine is about to declare the lease lost, but is held up, Err already returns an error to other goroutines.
func TestErrWhileTheLossIsBeingDeclared(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(unrenewed)
		parent := &stuckContext{Context: t.Context()}
		lease := must(p.Acquire(parent, "k"))
		stuck := make(chan struct{})
		parent.stuck.Store(&stuck)
		time.Sleep(9 * time.Second) // until the watchdog blocks while it declares the loss
		if lease.Context().Err() == nil {
			t.Errorf("no error %v after the end of validity", -time.Until(lease.ValidUntil()))
		}
		close(stuck)
	})
}
