package callback

import (
	"log/slog"
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/gate"
)

const (
	// maxQueued is how many calls of a queue may wait while a call does not return. Further calls are dropped.
	maxQueued = 64
	// maxGoroutines is how many queues may have a goroutine. More are needed only if this many calls do not return.
	maxGoroutines = 1024
	// reportInterval is the shortest time between two log lines about dropped calls.
	reportInterval = time.Minute
)

// A Background makes calls in the background. It limits the cost of application code that does not return: the number
// of goroutines, and of calls that wait. Calls beyond the limits are dropped, and the log reports their number. It is
// safe for concurrent use.
type Background struct {
	log  *slog.Logger
	gate *gate.Gate // each goroutine is inside

	mu         sync.Mutex // guards all fields below, and the fields of all Queues
	goroutines int
	ready      []*Queue // queues that wait for a goroutine

	dropped     int   // number of calls dropped so far
	reported    int   // number of dropped calls that the log has reported
	isReporting bool  // a line was logged, or is queued, less than reportInterval ago
	reports     Queue // calls of the logger
}

// A Queue has the calls about one object, such as a lease. They are made one after another, in order. The zero Queue is
// empty. A Queue belongs to one Background.
type Queue struct {
	calls    []func()
	isActive bool // the queue has a goroutine, or waits for one
}

// BackgroundOf returns the Background of a *core.Locker, for reports from goroutines of the packages that are built on
// core. Package core sets it when it is loaded.
var BackgroundOf func(locker any) *Background

// NewBackground returns a Background that logs to log. Its goroutines are inside the gate: once that is closed and
// empty, no call is made any more.
func NewBackground(log *slog.Logger, inside *gate.Gate) *Background {
	return &Background{log: log, gate: inside}
}

// Post queues a call of f, and returns at once. It drops f and returns false if too many calls of the queue wait
// because an earlier one does not return, or if the queue needs a goroutine and there are too many.
func (b *Background) Post(q *Queue, f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	isFull := len(q.calls) >= maxQueued
	lacksGoroutine := !q.isActive && b.goroutines >= maxGoroutines
	if isFull || lacksGoroutine {
		b.countDropped()
		return false
	}
	b.add(q, f)
	return true
}

// PostAlways queues a call that must not be dropped. It is for calls of which there are few, such as the report of an
// end whose beginning was reported.
func (b *Background) PostAlways(q *Queue, f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(q, f)
}

// Dropped returns the number of calls that were dropped.
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

// add adds a call to its queue, and makes sure that a goroutine has the queue or will take it. b.mu must be held.
func (b *Background) add(q *Queue, f func()) {
	q.calls = append(q.calls, f)
	if q.isActive {
		return
	}

	// The queue of reports gets a goroutine beyond the limit: otherwise the log could not report that the limit is
	// reached.
	q.isActive = true
	if b.goroutines >= maxGoroutines && q != &b.reports {
		b.ready = append(b.ready, q)
		return
	}

	started := b.gate.Go(func() { b.run(q) })
	if !started {
		// The gate is closed and empty.
		q.calls = nil
		q.isActive = false
		return
	}
	b.goroutines++
}

// run makes the calls of a queue, and then of other queues that are ready.
func (b *Background) run(q *Queue) {
	defer func() {
		// If a call has ended the goroutine, another one continues.
		if q != nil {
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

// takeCall removes and returns the first call of a queue. If there is none, it returns nil, and the queue is inactive.
func (b *Background) takeCall(q *Queue) (f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if len(q.calls) == 0 {
		q.calls = nil
		q.isActive = false
		return nil
	}

	f = q.calls[0]
	q.calls[0] = nil // the array must not keep f alive
	q.calls = q.calls[1:]
	return f
}

// takeQueue removes and returns a queue that is ready. It returns nil if the goroutine must end: no queue is ready, or
// the goroutine is one too many, because one was started beyond the limit for a report.
func (b *Background) takeQueue() (q *Queue) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if len(b.ready) == 0 || b.goroutines > maxGoroutines {
		b.goroutines--
		return nil
	}

	q = b.ready[0]
	b.ready = b.ready[1:]
	return q
}

// countDropped counts a dropped call. The log reports the first one at once, and further ones after reportInterval.
// b.mu must be held.
func (b *Background) countDropped() {
	b.dropped++
	if !b.isReporting {
		b.report()
	}
}

// report queues a log line with the number of dropped calls, unless one is queued already because the logger does not
// return. After reportInterval it repeats that if more calls were dropped. b.mu must be held.
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

// logDropped logs the number of dropped calls.
func (b *Background) logDropped() {
	b.mu.Lock()
	b.reported = b.dropped
	dropped := b.dropped
	b.mu.Unlock()

	b.log.Error("lockkit: an observer or a logger does not return: events are dropped", "dropped", dropped)
}
