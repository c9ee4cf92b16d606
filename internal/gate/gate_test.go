package gate

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestGate(t *testing.T) {
	var g Gate
	if !g.Enter() || !g.Join() {
		t.Fatal("an open gate admits nobody")
	}

	g.Close()
	g.Close()
	if g.Enter() {
		t.Fatal("entered through a closed gate")
	}

	cancelled, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cause")
	cancel(cause)
	if err := g.Wait(cancelled); err != cause {
		t.Errorf("Wait: %v", err)
	}

	goOn, over := make(chan struct{}), make(chan struct{})
	if !g.Go(func() { <-goOn; close(over) }) {
		t.Fatal("who is inside cannot have one more come in")
	}

	g.Leave()
	g.Leave()
	select {
	case <-g.Empty():
		t.Fatal("empty while somebody is inside")
	default:
	}

	close(goOn)
	if err := g.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over:
	default:
		t.Error("empty before the goroutine has ended")
	}

	if g.Join() || g.Go(func() {}) || g.Enter() || g.Count() != 0 {
		t.Error("admitted after the last has left")
	}
	if err := g.Wait(cancelled); err != nil {
		t.Errorf("Wait at an empty gate: %v", err)
	}
	g.Close()
}

func TestEmptyGate(t *testing.T) {
	var g Gate
	g.Close()
	if err := g.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestLeavesMoreThanEntered(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("nobody was inside, and one left")
		}
	}()
	new(Gate).Leave()
}

// comeAndGo enters and leaves, until it is refused.
func comeAndGo(g *Gate) {
	for range 20 {
		if !g.Enter() {
			return
		}
		g.Go(func() {})
		g.Leave()
	}
}

// A waiter is notified exactly once, whatever calls come at the same time.
func TestGateConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			var g Gate
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { comeAndGo(&g) })
			}
			all.Go(g.Close)
			all.Go(g.Close)
			all.Go(func() {
				if err := g.Wait(t.Context()); err != nil || g.Count() != 0 {
					t.Errorf("%d inside: %v", g.Count(), err)
				}
			})
			all.Wait()
		}
	})
}
