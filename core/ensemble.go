package core

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An ensemble is the nodes that vote together, and what all who ask them share.
type ensemble struct {
	nodes    []*node
	keys     *wire.Keyspace
	clock    clock.Stopwatch
	health   health
	unheard  resend
	waits    waits
	pace     time.Duration             // of batches, at least
	jitter   func(n int64) int64       // uniform in [0, n)
	attempts atomic.Uint64             // made so far, to name them
	head     atomic.Pointer[wire.Head] // with the longest lease in use

	waiters sync.Pool // each of one ensemble, since timers must not leave their synctest bubble

	mu       sync.Mutex
	tasks    sync.WaitGroup      // every goroutine of the Locker, and what is to be sent later
	answered clock.AtomicInstant // when a node last answered, by clock
	quiet    <-chan struct{}     // closed when nothing is left to be done
	joining  bool                // Close waits for the tasks, and there are no new ones
	closing  chan struct{}
}

// spawn runs f on a goroutine that Close waits for, unless Close has stopped waiting for more.
func (e *ensemble) spawn(f func()) {
	if e.enlist() {
		go func() {
			defer e.tasks.Done()
			f()
		}()
	}
}

// enlist books a task that Close waits for, and reports whether it still does.
func (e *ensemble) enlist() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.joining {
		return false
	}
	e.tasks.Add(1)
	return true
}

func (e *ensemble) isQuiet() bool   { return isClosed(e.quiet) }
func (e *ensemble) isClosing() bool { return isClosed(e.closing) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// report lists the votes for errors and observers. Nobody looks at those of a success that is not observed.
func (e *ensemble) report(t *tally, observed bool) []NodeReply {
	if !observed && t.confirmed() {
		return nil
	}
	replies := make([]NodeReply, len(t.votes))
	for i := range t.votes {
		replies[i] = t.votes[i].report(e.nodes[i])
	}
	return replies
}

func (v *vote) report(n *node) NodeReply {
	return NodeReply{Node: n.index, Addr: n.addr, Verdict: Verdict(v.Verdict), Rest: v.Rest, Skew: v.skew, Latency: v.latency, Err: v.err}
}
