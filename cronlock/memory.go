package cronlock

import (
	"sync"
	"time"
)

// A memory is what this process knows of the latest ticks of a job, so that it does not ask the nodes for what it knows. It
// has facts: what is recorded, and what this process did itself. What a clock has to do with, such as that a tick is late, is
// kept with the time at which it was found, and judged again by the clock that is believed when it matters.
type memory struct {
	mu      sync.Mutex
	entries map[int64]entry // by the instant; at most mostTicks

	// A start whose record this process asked for and that was not confirmed. If the nodes turn out to have it, it is still
	// this process's to begin. There is one at a time, because asking takes the job's lease.
	pending start

	// The latest tick that this process found not started, under the job's lease, and that was too late then; and the
	// reason why it did not start.
	lateTick time.Time
	lateAt   time.Time // when the look that found it began
	lateErr  error
}

// A start is one of a tick.
type start struct {
	tick    time.Time
	attempt int
}

// note adds what is known of a tick: that it is over or was started, or that it was never started and never will be.
func (m *memory) add(e entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[int64]entry{}
	}
	if before := m.entries[e.tick.UnixNano()]; before.isStarted() && before.state == tickOver && (e.state != tickOver || e.end == nil) {
		return // it is final, and may be what only this process knows
	}
	m.entries[e.tick.UnixNano()] = e
	for len(m.entries) > maxLookback {
		m.forgetOldest()
	}
}

func (m *memory) forgetOldest() {
	var oldest int64
	for at := range m.entries {
		if oldest == 0 || at < oldest {
			oldest = at
		}
	}
	delete(m.entries, oldest)
}

// of returns what is known of a tick.
func (m *memory) lookup(tick time.Time) (e entry, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known = m.entries[tick.UnixNano()]
	return e, known
}

// asksFor notes a start that this process is about to have recorded, and reports whether it has asked for that before.
func (m *memory) setPending(s start) (again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	again = m.pending == s
	m.pending = s
	return again
}

// answered notes that a start was confirmed, or that it is another process's.
func (m *memory) clearPending() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = start{}
}

// owns reports whether a start is the one that was not confirmed.
func (m *memory) isPending(s start) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending == s
}

// pass notes that a look that began at an instant found a tick too late.
func (m *memory) setLate(tick, at time.Time, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lateTick, m.lateAt, m.lateErr = tick, at, why
}

// wasPassed returns when a tick was found too late, and why, if it was.
func (m *memory) lateReason(tick time.Time) (at time.Time, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.lateTick.Equal(tick) {
		return time.Time{}, nil
	}
	return m.lateAt, m.lateErr
}
