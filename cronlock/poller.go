package cronlock

import (
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/stall"
)

const (
	// retry is the shortest pause before a look that follows a failure.
	retryDelay = time.Second
	// leastPause is between the beginnings of any two looks at a job. Ticks that follow each other faster are superseded.
	minPollInterval = 50 * time.Millisecond
)

// looks decides when the engine looks at a job. At most one look is under way or planned: while one is under way, a request
// for another is only noted, and the timer is set again when it has ended. So looks cannot multiply, whatever asks for them
// and however long they take.
type poller struct {
	poll func()
	gate *gate.Gate // each look is inside

	mu        sync.Mutex
	timer     *time.Timer
	nextAt    time.Time // when the next look is to begin; zero if nothing has asked for one
	lastStart time.Time // when the last one began
	isPolling bool
	isStopped bool
}

func newPoller(g *gate.Gate, look func()) *poller {
	l := &poller{gate: g, poll: look}
	l.timer = time.AfterFunc(time.Hour, l.onTimer)
	l.timer.Stop()
	return l
}

// within asks for a look that begins after d at the latest.
func (l *poller) pollWithin(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	when := time.Now().Add(d)
	if !l.nextAt.IsZero() && !when.Before(l.nextAt) {
		return
	}
	l.nextAt = when
	l.resetTimer()
}

// again asks for a look after a failure, which is never sooner than the retry pause.
func (l *poller) retryIn(d time.Duration) { l.pollWithin(max(d, retryDelay)) }

// plan sets the timer for the next look, unless one is under way. It is called with the lock.
func (l *poller) resetTimer() {
	if l.isPolling || l.isStopped || l.nextAt.IsZero() {
		return
	}
	if least := l.lastStart.Add(minPollInterval); l.nextAt.Before(least) {
		l.nextAt = least
	}
	l.timer.Reset(time.Until(l.nextAt))
}

// fire is what the timer calls.
func (l *poller) onTimer() {
	stall.At(stall.Timer, stall.Anywhere, l)
	begun := l.begin()
	if !begun {
		return
	}
	defer l.finish()

	entered := l.gate.Enter()
	if !entered {
		return
	}
	defer l.gate.Leave()
	l.poll()
}

// begin reports whether a look begins. A timer that was set again while it fired comes too early, or twice.
func (l *poller) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.isPolling || l.isStopped || l.nextAt.IsZero() {
		return false
	}
	if now.Before(l.nextAt) {
		l.resetTimer()
		return false
	}
	l.isPolling, l.lastStart, l.nextAt = true, now, time.Time{}
	return true
}

// over plans the next look when one has ended.
func (l *poller) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isPolling = false
	l.resetTimer()
}

// end makes the look that is under way the last one.
func (l *poller) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isStopped = true
	l.timer.Stop()
}
