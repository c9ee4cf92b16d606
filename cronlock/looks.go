package cronlock

import (
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/stall"
)

const (
	// retry is the shortest pause before a look that follows a failure.
	retry = time.Second
	// leastPause is between the beginnings of any two looks at a job. Ticks that follow each other faster are superseded.
	leastPause = 50 * time.Millisecond
)

// looks decides when the engine looks at a job. At most one look is under way or planned: while one is under way, a request
// for another is only noted, and the timer is set again when it has ended. So looks cannot multiply, whatever asks for them
// and however long they take.
type looks struct {
	look func()
	gate *gate.Gate // each look is inside

	mu       sync.Mutex
	timer    *time.Timer
	next     time.Time // when the next look is to begin; zero if nothing has asked for one
	began    time.Time // when the last one began
	underway bool
	ended    bool
}

func newLooks(g *gate.Gate, look func()) *looks {
	l := &looks{gate: g, look: look}
	l.timer = time.AfterFunc(time.Hour, l.fire)
	l.timer.Stop()
	return l
}

// within asks for a look that begins after d at the latest.
func (l *looks) within(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	when := time.Now().Add(d)
	if !l.next.IsZero() && !when.Before(l.next) {
		return
	}
	l.next = when
	l.plan()
}

// again asks for a look after a failure, which is never sooner than the retry pause.
func (l *looks) again(d time.Duration) { l.within(max(d, retry)) }

// plan sets the timer for the next look, unless one is under way. It is called with the lock.
func (l *looks) plan() {
	if l.underway || l.ended || l.next.IsZero() {
		return
	}
	if least := l.began.Add(leastPause); l.next.Before(least) {
		l.next = least
	}
	l.timer.Reset(time.Until(l.next))
}

// fire is what the timer calls.
func (l *looks) fire() {
	stall.At(stall.Timer, stall.Anywhere, l)
	begun := l.begin()
	if !begun {
		return
	}
	defer l.over()

	entered := l.gate.Enter()
	if !entered {
		return
	}
	defer l.gate.Leave()
	l.look()
}

// begin reports whether a look begins. A timer that was set again while it fired comes too early, or twice.
func (l *looks) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.underway || l.ended || l.next.IsZero() {
		return false
	}
	if now.Before(l.next) {
		l.plan()
		return false
	}
	l.underway, l.began, l.next = true, now, time.Time{}
	return true
}

// over plans the next look when one has ended.
func (l *looks) over() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underway = false
	l.plan()
}

// end makes the look that is under way the last one.
func (l *looks) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.timer.Stop()
}
