package core

import (
	"sync"
	"sync/atomic"
	"time"
)

// An engine is what all Lockers derived from one another share: nodes, local queue, watchdog.
type engine struct {
	nodes         []*node
	keys          keyspace
	guards        []any // guard keys by bucket, boxed
	clock         stopwatch
	lines         lines
	watchdog      watchdog
	health        health
	judging       sync.Mutex
	pace          time.Duration                // of batches, at least
	jitter        func(n int64) int64          // uniform in [0, n)
	attempts      atomic.Uint64                // made so far, to name them
	longest       atomic.Pointer[longestLease] // in use, where a node knows of a longer one than this process's
	tasks         sync.WaitGroup               // every goroutine of the Locker
	owned         bool                         // Close closes the clients
	clientsClosed sync.Once

	mu      sync.Mutex
	leases  map[*Lease]struct{}
	active  int           // calls of Acquire under way
	quiet   chan struct{} // closed when a closed engine has neither leases nor calls
	closed  bool
	closing chan struct{}
}

// begin books a call that may talk to nodes. One that acquires is refused once the engine is closing, any
// other once nothing is left that it could belong to.
func (e *engine) begin(acquires bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed && (acquires || e.isQuiet()) {
		return false
	}
	e.active++
	return true
}

// end books the end of a call.
func (e *engine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active--
	e.hush()
}

// keep books a lease, unless the engine is closing.
func (e *engine) keep(lease *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.leases[lease] = struct{}{}
	e.lines.holds(lease)
	return true
}

// retire books that a lease is over.
func (e *engine) retire(l *Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.leases, l)
	e.hush()
}

// spawn runs f on a goroutine that Close waits for, unless Close has stopped waiting for more.
func (e *engine) spawn(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isQuiet() {
		e.tasks.Go(f)
	}
}

func (e *engine) hush() {
	if e.closed && e.active == 0 && len(e.leases) == 0 && !e.isQuiet() {
		close(e.quiet)
	}
}

func (e *engine) isQuiet() bool   { return isClosed(e.quiet) }
func (e *engine) isClosing() bool { return isClosed(e.closing) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
