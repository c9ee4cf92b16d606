package core

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"

	"github.com/lockkit/lockkit/core/internal/quorum"
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
func (e *ensemble) report(t *quorum.Tally, observed bool) []NodeReply {
	if !observed && t.Confirmed() {
		return nil
	}
	replies := make([]NodeReply, len(t.Votes))
	for i := range t.Votes {
		replies[i] = replyOf(e.nodes[i], &t.Votes[i])
	}
	return replies
}

func replyOf(n *node, v *quorum.Vote) NodeReply {
	return NodeReply{Node: n.index, Addr: n.addr, Verdict: Verdict(v.Verdict), Rest: v.Rest, Skew: v.Skew, Latency: v.Latency, Err: v.Err}
}

// Guarantee 1 needs the longest max TTL of all processes: a node that lost its memory grants nothing for so long. A user
// with failovers beyond the default sets WithMaxTTL, in one process after the other, so each learns it from the nodes.

// learn notes the longest lease in use, as a node knows it. From then on all requests bring it along, so that
// nodes that have forgotten it wait for it, too. It reports whether an operator is to be told: the first time.
func (e *ensemble) learn(longest time.Duration, p *policy) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.head.Load()
	if longest <= known.MaxTTL {
		return false
	}
	e.head.Store(known.WithMaxTTL(longest))
	return known.MaxTTL == p.maxTTL
}

// outdated reports whether a longer lease is known by now than when the round began.
func (r *round) outdated() bool { return r.e.head.Load() != r.head }

func (p *policy) tellLongest(longest time.Duration, from *node) {
	p.logger.Warn("lockkit: a process uses, or has used, a longer max TTL: set WithMaxTTL to the longest in all of them",
		from.attrs(), "longest", longest, "own", p.maxTTL)
}
