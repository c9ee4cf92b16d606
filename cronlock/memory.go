package cronlock

import (
	"sync"
	"time"
)

// A memory stores the facts that this process knows about the latest ticks of a job, so that it need not ask the nodes
// for them: records, and this process's own runs. A fact that depends on a clock, such as the lateness of a tick, is
// stored with the time at which it was found. It is judged again, by the clock that is believed then, whenever it
// matters.
type memory struct {
	mu      sync.Mutex      // guards all fields below
	entries map[int64]entry // by tick, in nanoseconds since 1970; at most maxLookback

	// The start whose record this process asked for without a reply. If the nodes have the record, this process may
	// still begin the run. There is only one, because the request requires the job's lease.
	pending startID

	// The latest tick that this process, holding the job's lease, found not started and too late.
	lateTick time.Time
	lateAt   time.Time // beginning of the poll that found it
	lateErr  error     // the reason why it did not start
}

// A startID identifies one start of a tick.
type startID struct {
	tick    time.Time
	attempt int
}

// add stores the entry of a tick that is over, that was started, or that was not and will not be started.
func (m *memory) add(e entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[int64]entry{}
	}

	before := m.entries[e.tick.UnixNano()]
	hasFinalEnd := e.state == tickOver && e.end != nil
	if before.isFinal() && !hasFinalEnd {
		// The old entry may be known to this process only.
		return
	}

	m.entries[e.tick.UnixNano()] = e
	for len(m.entries) > maxLookback {
		m.forgetOldest()
	}
}

// forgetOldest deletes the entry of the earliest tick. m.mu must be held.
func (m *memory) forgetOldest() {
	var oldest int64
	for tick := range m.entries {
		if oldest == 0 || tick < oldest {
			oldest = tick
		}
	}
	delete(m.entries, oldest)
}

// lookup returns the entry of a tick.
func (m *memory) lookup(tick time.Time) (e entry, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, known = m.entries[tick.UnixNano()]
	return e, known
}

// lastCompleted returns the latest tick, up to and including the given one, that is known to have completed without an
// error, or the zero time.
func (m *memory) lastCompleted(upTo time.Time) (last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		isCompleted := e.end != nil && e.end.Error == ""
		if isCompleted && e.tick.After(last) && !e.tick.After(upTo) {
			last = e.tick
		}
	}
	return last
}

// setPending stores the start that this process is about to record, and reports whether it was already pending.
func (m *memory) setPending(s startID) (isRepeated bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	isRepeated = m.pending == s
	m.pending = s
	return isRepeated
}

// clearPending forgets the pending start: it was confirmed, or it belongs to another process.
func (m *memory) clearPending() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = startID{}
}

// isPending reports whether s is the pending start.
func (m *memory) isPending(s startID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending == s
}

// setLate stores that a poll that began at a given time found a tick too late, and the reason for which it did not
// start.
func (m *memory) setLate(tick, began time.Time, reason error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lateTick = tick
	m.lateAt = began
	m.lateErr = reason
}

// lateReason returns the arguments of setLate for a tick, or a nil error if the tick was not found too late.
func (m *memory) lateReason(tick time.Time) (began time.Time, reason error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.lateTick.Equal(tick) {
		return time.Time{}, nil
	}
	return m.lateAt, m.lateErr
}
