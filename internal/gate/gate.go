// Package gate counts who is inside of something that is going to be closed.
package gate

import (
	"context"
	"sync"

	"github.com/lockkit/lockkit/internal/stall"
)

// A Gate admits callers until it is closed, and tells when the last of them has left. The zero value is open. It is safe
// for concurrent use.
type Gate struct {
	mu       sync.Mutex
	inside   int
	isClosed bool
	empty    chan struct{}
}

// Enter reports whether the caller is let in, and then is to call Leave. A closed gate lets nobody in.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		return false
	}
	g.inside++
	return true
}

// Join reports whether one more is let in on behalf of somebody who is inside. So a closed gate lets it in as well, until
// nobody is inside.
func (g *Gate) Join() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed && g.inside == 0 {
		return false
	}
	g.inside++
	return true
}

// Go runs f on a goroutine that is inside, if Join lets it in, and reports whether it does.
func (g *Gate) Go(f func()) bool {
	if !g.Join() {
		return false
	}
	go func() {
		defer g.Leave()
		stall.At(stall.Start, stall.Anywhere, g)
		f()
	}()
	return true
}

// Leave lets one out.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside < 0 {
		panic("gate: more have left than have entered")
	}
	g.closeIfEmpty()
}

// Close has Enter refuse from now on. It waits for nobody and may be called again.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isClosed {
		g.isClosed = true
		g.closeIfEmpty()
	}
}

// Inside returns how many are inside.
func (g *Gate) Inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// Empty returns a channel that is closed once the gate is closed and nobody is inside.
func (g *Gate) Empty() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.emptyLocked()
}

// Wait waits until the gate is closed and nobody is inside, or returns the cause of the end of ctx.
func (g *Gate) Wait(ctx context.Context) error {
	empty := g.Empty()
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

func (g *Gate) emptyLocked() chan struct{} {
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	return g.empty
}

// tell is called with the lock, by whoever closed the gate or left.
func (g *Gate) closeIfEmpty() {
	if g.isClosed && g.inside == 0 {
		close(g.emptyLocked())
	}
}
