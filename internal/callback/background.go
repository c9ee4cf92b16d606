package callback

import (
	"log/slog"
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/gate"
)

const (
	// maxWaiting is how many calls of a queue wait while one of them has not returned. Those beyond it are dropped.
	maxQueued = 64
	// maxAtOnce is how many queues have a goroutine. More are needed only if so many calls do not return.
	maxGoroutines = 1024
	// reportEvery is how often at most the log says how many calls were dropped.
	reportInterval = time.Minute
)

// A Background makes calls that nobody waits for. It bounds what code of the user's can cost that does not return: in
// goroutines, and in calls that wait. The others are dropped, and the log says how many. It is safe for concurrent use.
type Background struct {
	log  *slog.Logger
	gate *gate.Gate // each goroutine is inside

	mu         sync.Mutex
	goroutines int
	ready      []*Queue // have calls to make, and get a goroutine when there is one

	dropped     int // calls, so far
	reported    int // how many of them the log has
	isReporting bool
	reports     Queue
}

// A Queue is the calls about one thing, such as a lease: they are made one after the other, in order. The zero Queue is
// empty. A Queue belongs to one Background, whose lock guards it.
type Queue struct {
	calls    []func()
	isActive bool // a goroutine has it, or it is ready for one
}

// Of returns the Background of a *core.Locker, for the packages that are built on core: what their own goroutines have to tell.
// Package core sets it when it is loaded.
var Of func(locker any) *Background

// NewBackground returns a Background that logs to log, and whose goroutines are inside of a gate: once that is closed and
// empty, no call is made any more.
func NewBackground(log *slog.Logger, inside *gate.Gate) *Background {
	return &Background{log: log, gate: inside}
}

// Post makes a call soon, and returns at once. While an earlier call of the queue does not return, only a few can wait for it:
// if there are too many, f is dropped, and Post returns false.
func (b *Background) Post(q *Queue, f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := len(q.calls) >= maxQueued || !q.isActive && b.goroutines >= maxGoroutines
	if full {
		b.countDropped()
		return false
	}
	b.add(q, f)
	return true
}

// PostAlways is Post for a call that must not be dropped, and of which there are few: the end of something whose beginning
// was told.
func (b *Background) PostAlways(q *Queue, f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(q, f)
}

// Dropped returns how many calls were dropped.
func (b *Background) Dropped() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Busy reports whether a call is under way, or about to be made.
func (b *Background) Busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.goroutines > 0
}

// add puts a call into its queue, and has somebody make it. Called with the lock.
func (b *Background) add(q *Queue, f func()) {
	q.calls = append(q.calls, f)
	if q.isActive {
		return
	}
	q.isActive = true
	if b.goroutines >= maxGoroutines && q != &b.reports {
		b.ready = append(b.ready, q)
		return
	}

	started := b.gate.Go(func() { b.run(q) })
	if !started { // it is closed
		q.calls, q.isActive = nil, false
		return
	}
	b.goroutines++
}

// work makes the calls of a queue, and then those of queues that are ready.
func (b *Background) run(q *Queue) {
	defer func() {
		if q != nil { // a call has ended the goroutine, and another one goes on
			b.gate.Go(func() { b.run(q) })
		}
	}()
	for q != nil {
		f := b.takeCall(q)
		if f == nil {
			q = b.takeQueue()
			continue
		}
		Call(b.log, "in the background", f)
	}
}

// next takes the first call of a queue; nil if it has none.
func (b *Background) takeCall(q *Queue) (f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(q.calls) == 0 {
		q.calls, q.isActive = nil, false
		return nil
	}
	f, q.calls[0] = q.calls[0], nil
	q.calls = q.calls[1:]
	return f
}

// nextQueue takes a queue that is ready; if there is none, the goroutine ends. So does one that was started beyond the bound,
// for a report.
func (b *Background) takeQueue() (q *Queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 || b.goroutines > maxGoroutines {
		b.goroutines--
		return nil
	}
	q, b.ready = b.ready[0], b.ready[1:]
	return q
}

// drop counts a call that is not made, and has the log say so: at once, and then while more are dropped. Called with the lock.
func (b *Background) countDropped() {
	b.dropped++
	if !b.isReporting {
		b.report()
	}
}

// report has the log say how many calls were dropped so far, unless the logger is what does not return, and looks again
// later. Called with the lock.
func (b *Background) report() {
	b.isReporting = true
	if !b.reports.isActive {
		b.add(&b.reports, b.logDropped)
	}
	time.AfterFunc(reportInterval, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.isReporting = false
		if b.dropped > b.reported {
			b.report()
		}
	})
}

func (b *Background) logDropped() {
	b.mu.Lock()
	b.reported = b.dropped
	dropped := b.dropped
	b.mu.Unlock()
	b.log.Error("lockkit: an observer or a logger does not return: events are dropped", "dropped", dropped)
}
