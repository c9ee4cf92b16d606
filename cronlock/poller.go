package cronlock

import (
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/stall"
)

const (
	// retryDelay is the shortest pause before a poll that follows a failure.
	retryDelay = time.Second
	// minPollInterval is the shortest time between the beginnings of two polls. Ticks at shorter intervals are
	// superseded.
	minPollInterval = 50 * time.Millisecond
)

// A poller polls one job. At most one poll is running or scheduled: a request for a poll while one is running only sets
// nextAt, and the timer is set when that poll has ended. So polls cannot multiply, however many requests come and
// however long polls take.
type poller struct {
	poll func()
	gate *gate.Gate // each poll is inside

	mu        sync.Mutex // guards all fields below
	timer     *time.Timer
	nextAt    time.Time // when the next poll must begin; zero if none was requested
	lastStart time.Time // when the last poll began
	isPolling bool
	isStopped bool
}

// newPoller returns a poller without a scheduled poll.
func newPoller(g *gate.Gate, poll func()) *poller {
	p := &poller{gate: g, poll: poll}
	p.timer = time.AfterFunc(time.Hour, p.onTimer)
	p.timer.Stop()
	return p
}

// pollWithin schedules a poll in d, unless an earlier one is scheduled.
func (p *poller) pollWithin(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	when := time.Now().Add(d)
	if !p.nextAt.IsZero() && !when.Before(p.nextAt) {
		return
	}
	p.nextAt = when
	p.resetTimer()
}

// retryIn schedules a poll after a failure, in d or in retryDelay if that is longer.
func (p *poller) retryIn(d time.Duration) { p.pollWithin(max(d, retryDelay)) }

// isPending reports whether a poll was requested and may begin when its time comes. p.mu must be held.
func (p *poller) isPending() bool { return !p.isPolling && !p.isStopped && !p.nextAt.IsZero() }

// resetTimer sets the timer for the next poll, unless a poll is running. p.mu must be held.
func (p *poller) resetTimer() {
	if !p.isPending() {
		return
	}

	if least := p.lastStart.Add(minPollInterval); p.nextAt.Before(least) {
		p.nextAt = least
	}
	p.timer.Reset(time.Until(p.nextAt))
}

// onTimer runs a poll if one is due.
func (p *poller) onTimer() {
	stall.At(stall.Timer, stall.Anywhere, p)

	begun := p.begin()
	if !begun {
		return
	}
	defer p.finish()

	entered := p.gate.Enter()
	if !entered {
		return
	}
	defer p.gate.Leave()
	p.poll()
}

// begin marks a poll as running and reports true, unless no poll is due: a timer that was reset while it fired may fire
// too early, or twice.
func (p *poller) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	now := time.Now()
	if !p.isPending() {
		return false
	}
	if now.Before(p.nextAt) {
		p.resetTimer()
		return false
	}

	p.isPolling = true
	p.lastStart = now
	p.nextAt = time.Time{}
	return true
}

// finish marks the poll as ended, and sets the timer for the next one.
func (p *poller) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.isPolling = false
	p.resetTimer()
}

// stop prevents further polls. A running poll goes on.
func (p *poller) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isStopped = true
	p.timer.Stop()
}
