// Package gate tracks the users of an object that can be closed, so that Close can wait for them.
package gate

import (
	"context"
	"sync"

	"github.com/lockkit/lockkit/internal/stall"
)

// A Gate admits callers until it is closed, and reports when the last of them has left. The zero value is open. It is
// safe for concurrent use.
type Gate struct {
	mu       sync.Mutex // guards all fields below
	inside   int
	isClosed bool
	empty    chan struct{} // closed when the gate is closed and empty; nil until it is needed
}

// Enter enters the gate and reports true, or reports false if the gate is closed. After true, the caller must call
// Leave.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.isClosed {
		return false
	}
	g.inside++
	return true
}

// Join enters the gate on behalf of a caller that is inside, so it also enters a closed gate unless that is empty. It
// reports whether it entered. After true, the caller must call Leave.
func (g *Gate) Join() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.isClosedAndEmpty() {
		return false
	}
	g.inside++
	return true
}

// Go runs f on a new goroutine that is inside, and reports true. If the gate is closed and empty, Go reports false and
// does not run f.
func (g *Gate) Go(f func()) bool {
	joined := g.Join()
	if !joined {
		return false
	}

	go func() {
		defer g.Leave()
		stall.At(stall.Start, stall.Anywhere, g)
		f()
	}()
	return true
}

// Leave leaves the gate.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.inside--
	if g.inside < 0 {
		panic("gate: more have left than have entered")
	}
	g.closeIfEmpty()
}

// Close closes the gate for Enter. It does not wait. Further calls do nothing.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()

	if !g.isClosed {
		g.isClosed = true
		g.closeIfEmpty()
	}
}

// Count returns the number of callers that are inside.
func (g *Gate) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// Empty returns a channel that is closed when the gate is closed and empty.
func (g *Gate) Empty() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.emptyLocked()
}

// Wait waits until the gate is closed and empty. If ctx ends first, Wait returns its cause.
func (g *Gate) Wait(ctx context.Context) error {
	empty := g.Empty()

	// An empty gate counts even if ctx has ended.
	select {
	case <-empty:
		return nil
	default:
	}

	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isClosedAndEmpty reports whether the gate is closed and no caller is inside. g.mu must be held.
func (g *Gate) isClosedAndEmpty() bool { return g.isClosed && g.inside == 0 }

// emptyLocked returns the channel of Empty. g.mu must be held.
func (g *Gate) emptyLocked() chan struct{} {
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	return g.empty
}

// closeIfEmpty closes the channel of Empty if the gate is closed and empty. It is called once after that state is
// reached. g.mu must be held.
func (g *Gate) closeIfEmpty() {
	if g.isClosedAndEmpty() {
		close(g.emptyLocked())
	}
}
