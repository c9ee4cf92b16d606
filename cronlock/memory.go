package cronlock

import (
	"slices"
	"sync"
	"time"
)

// A memory is what this process knows of the latest ticks of a job, so that it does not ask the nodes for what it knows. It
// has facts: what is recorded, and what this process did itself. What a clock has to do with, such as that a tick is late, is
// kept with the time at which it was found, and judged again by the clock that is believed when it matters.
type memory struct {
	mu    sync.Mutex
	known map[int64]entry // by the instant; at most mostTicks

	// A start whose record this process asked for and that was not confirmed. If the nodes turn out to have it, it is still
	// this process's to begin. There is one at a time, because asking takes the job's lease.
	open start

	// The latest tick that this process found not started, under the job's lease, and that was too late then; and the
	// reason why it did not start.
	passed    time.Time
	passedAt  time.Time // when the look that found it began
	passedFor error
}

// A start is one of a tick.
type start struct {
	tick    time.Time
	attempt int
}

// note adds what is known of a tick: that it is over or was started, or that it was never started and never will be.
func (m *memory) note(e entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[int64]entry{}
	}
	if before := m.known[e.tick.UnixNano()]; before.started() && before.state == over && (e.state != over || e.end == nil) {
		return // it is final, and may be what only this process knows
	}
	m.known[e.tick.UnixNano()] = e
	for len(m.known) > mostTicks {
		m.forgetOldest()
	}
}

func (m *memory) forgetOldest() {
	var oldest int64
	for at := range m.known {
		if oldest == 0 || at < oldest {
			oldest = at
		}
	}
	delete(m.known, oldest)
}

// of returns what is known of a tick.
func (m *memory) of(tick time.Time) (e entry, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known = m.known[tick.UnixNano()]
	return e, known
}

// asksFor notes a start that this process is about to have recorded, and reports whether it has asked for that before.
func (m *memory) asksFor(s start) (again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	again = m.open == s
	m.open = s
	return again
}

// answered notes that a start was confirmed, or that it is another process's.
func (m *memory) answered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = start{}
}

// owns reports whether a start is the one that was not confirmed.
func (m *memory) owns(s start) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open == s
}

// pass notes that a look that began at an instant found a tick too late.
func (m *memory) pass(tick, at time.Time, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passed, m.passedAt, m.passedFor = tick, at, why
}

// wasPassed returns when a tick was found too late, and why, if it was.
func (m *memory) wasPassed(tick time.Time) (at time.Time, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.passed.Equal(tick) {
		return time.Time{}, nil
	}
	return m.passedAt, m.passedFor
}

// ticksBefore returns the ticks of a schedule that are later than after and before the given one, the latest first, and at
// most as many as are looked back for.
func ticksBefore(s Schedule, tick, after time.Time) (all []time.Time) {
	for len(all) < mostTicks {
		tick, _ = latest(s, tick.Add(-1))
		if tick.IsZero() || !tick.After(after) {
			break
		}
		all = append(all, tick)
	}
	return slices.Clip(all)
}
