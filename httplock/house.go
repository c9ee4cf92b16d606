package httplock

import (
	"context"
	"fmt"
	"sync"
)

// A house is what all Middlewares derived from one another share: how many requests are in it, how many of
// these wait, and whether it drains.
type house struct {
	total    int // how many may wait
	draining context.Context
	drain    context.CancelFunc

	mu      sync.Mutex
	inside  int // requests that wait or run, and what they left to be finished in the background
	waiting int
	lines   map[string]int // waiting, by key
	empty   chan struct{}  // closed when it drains and nobody is inside
}

func newHouse(total int) *house {
	h := &house{total: total, lines: map[string]int{}, empty: make(chan struct{})}
	h.draining, h.drain = context.WithCancel(context.Background())
	return h
}

// enter lets a request in, to wait; "" means that it is in.
func (h *house) enter() Kind {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining.Err() != nil:
		return KindDraining
	case h.waiting >= h.total:
		return KindOverloaded
	}
	h.inside++
	h.waiting++
	return ""
}

// served books that a request waits no more.
func (h *house) served() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting--
}

// leave lets a request out.
func (h *house) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inside--
	h.hush()
}

// spawn runs f on a goroutine that Close waits for. The caller is inside.
func (h *house) spawn(f func()) {
	h.mu.Lock()
	h.inside++
	h.mu.Unlock()
	go func() {
		defer h.leave()
		f()
	}()
}

// queue books one more that waits for key, unless there are that many.
func (h *house) queue(key string, most int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lines[key] >= most {
		return false
	}
	h.lines[key]++
	return true
}

// unqueue takes queue back.
func (h *house) unqueue(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lines[key]--; h.lines[key] == 0 {
		delete(h.lines, key)
	}
}

func (h *house) hush() {
	if h.draining.Err() != nil && h.inside == 0 {
		select {
		case <-h.empty:
		default:
			close(h.empty)
		}
	}
}

// Drain refuses requests from now on and sends those home that wait, all with 503. Handlers that run are left
// alone. It does not wait; it suits http.Server.RegisterOnShutdown, so that Shutdown need not wait for those who
// wait for a key.
func (m *Middleware) Drain() {
	m.house.drain()
	m.house.mu.Lock()
	defer m.house.mu.Unlock()
	m.house.hush()
}

// Close drains, and waits until no handler runs and every key was given back. When ctx ends first, the error
// is its cause and says how many requests are left; these keep their keys until they are over. It ends all
// that With derived, too, and does not close the core.Locker: do that afterwards.
func (m *Middleware) Close(ctx context.Context) error {
	m.Drain()
	h := m.house
	select {
	case <-h.empty:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Errorf("httplock: %w, with %d requests under way", context.Cause(ctx), h.inside)
}
