package core

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Bugs of other lock libraries with contenders who split the votes, and what has to happen instead.

// node-redlock: split votes of an even number of nodes never settle.
func TestSplitVotesSettle(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			bubble(t, n, func(t *testing.T, w *world) {
				a, b := w.process(), w.process()
				for i := range n { // each is first at one half
					slow := []*process{a, b}[i%2]
					slow.links[i].next(fate{delay: 10 * time.Millisecond}, acquireScript)
				}
				start := time.Now()
				leases := make(chan *Lease, 2)
				for _, p := range []*process{a, b} {
					go func() {
						lease, err := p.TryAcquire(t.Context(), "k")
						if err != nil && !errors.Is(err, ErrHeld) {
							t.Error(err)
						}
						leases <- lease
					}()
				}
				one, other := receive(t, leases), receive(t, leases)
				if d := time.Since(start); d > a.p.nodeTimeout {
					t.Errorf("settled after %v", d)
				}
				if (one == nil) == (other == nil) { // who only tries would otherwise leave a free key to nobody
					t.Fatalf("%v and %v have the key, want one of them", one, other)
				}
				if one == nil {
					one = other
				}
				w.release(one)
				w.release(w.acquire(b, "k"))
			})
		})
	}
}

// As many contenders as nodes, and each has the vote of one: all of them are refused by a quorum, and nobody
// holds the key.
func TestThreeContendersSettle(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		leases := make(chan *Lease, 3)
		var all []*process
		for i := range 3 {
			p := w.process()
			for n := range 3 { // each is first at another node
				p.links[n].next(fate{delay: time.Duration(1+(n-i+3)%3) * time.Millisecond}, acquireScript)
			}
			all = append(all, p)
		}
		for _, p := range all {
			go func() {
				lease, err := p.TryAcquire(t.Context(), "k")
				if err != nil && !errors.Is(err, ErrHeld) {
					t.Error(err)
				}
				leases <- lease
			}()
		}
		holders := 0
		for range 3 {
			if lease := receive(t, leases); lease != nil {
				holders++
			}
		}
		if holders != 1 {
			t.Errorf("%d have the key, want 1", holders)
		}
	})
}

// node-redlock: an attempt that won a minority must not stand in its own way.
func TestOwnTracesDoNotBlock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.links[1].sequence(acquireScript, fate{refuse: true}, fate{})
		p.links[2].set(fate{refuse: true})
		lease, err := p.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		w.release(lease)
	})
}
