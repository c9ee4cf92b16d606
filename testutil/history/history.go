package history

import (
	"sync"
	"time"
)

// History records what the users of a lock were told and decides afterwards
// whether a correct lock could have told them so. The zero value is ready for
// use, and all methods may be called from any goroutine.
//
// Events are ordered by the instants given to them; events of the same instant
// are ordered by the calls. All instants must come from clocks that agree: one
// process, one host, or one fake clock.
type History struct {
	mu   sync.Mutex
	seq  int
	keys map[string]*keyHistory
}

// keyHistory holds the events of one key; keys never influence each other.
type keyHistory struct {
	name     string
	attempts int
	pending  map[string]moment
	grants   []grant
	ends     []end
	writes   []write
	reports  []report
	forgets  []moment
}

// moment is an instant with the rank of its recording as a tie-break. The rank
// makes fake clocks useful, on which many events share an instant.
type moment struct {
	at  time.Time
	seq int
}

// before reports whether m comes before o.
func (m moment) before(o moment) bool {
	if m.at.Equal(o.at) {
		return m.seq < o.seq
	}
	return m.at.Before(o.at)
}

type lease struct {
	holder string
	token  uint64
}

type grant struct {
	lease
	start  moment
	marked bool // start was recorded by Attempt
	at     moment
}

type end struct {
	lease
	at   moment
	lost bool
}

type write struct {
	token    uint64
	at       moment
	accepted bool
}

// report is somebody being told that the key is done.
type report struct {
	lease
	at   moment
	seen bool // told to an acquirer, not to the one that completed
}

// Attempt marks the start of an acquisition; call it before Acquire. It is
// optional: it belongs to the next Granted of the same key and holder, and the
// latest mark counts if earlier attempts failed. A grant without a mark is
// taken to have started when it was reported. A holder name must not be used
// for two acquisitions of one key at a time.
func (h *History) Attempt(key, holder string, at time.Time) {
	k, m := h.record(key, at)
	defer h.mu.Unlock()
	k.attempts++
	k.pending[holder] = m
}

// Granted records that holder was told it holds key; call it after Acquire
// returned.
func (h *History) Granted(key, holder string, token uint64, at time.Time) {
	k, m := h.record(key, at)
	defer h.mu.Unlock()
	start, marked := k.pending[holder]
	delete(k.pending, holder)
	if !marked || m.before(start) {
		start = m
	}
	k.grants = append(k.grants, grant{lease{holder, token}, start, marked, m})
}

// Ended records the first instant at which holder no longer trusted its lease:
// the call of Release or Complete. If a lease is ended more than once, the
// earliest instant counts. A lease that is never ended is trusted until the
// end of the history.
func (h *History) Ended(key, holder string, token uint64, at time.Time) {
	h.end(key, holder, token, at, false)
}

// Lost is Ended for a lease that was taken from its holder; at is the end of
// its validity and may lie in the past. It differs from Ended only in Report.
func (h *History) Lost(key, holder string, token uint64, at time.Time) {
	h.end(key, holder, token, at, true)
}

func (h *History) end(key, holder string, token uint64, at time.Time, lost bool) {
	k, m := h.record(key, at)
	defer h.mu.Unlock()
	k.ends = append(k.ends, end{lease{holder, token}, m, lost})
}

// Wrote records a protected write that was tried at a resource which checks
// fences, and whether the resource accepted it. Call it in the order in which
// the resource decided, with the instant of the decision.
func (h *History) Wrote(key string, token uint64, at time.Time, accepted bool) {
	k, m := h.record(key, at)
	defer h.mu.Unlock()
	k.writes = append(k.writes, write{token, m, accepted})
}

// Completed records that holder was told its completion is recorded. It ends
// the lease too, unless that ended earlier.
func (h *History) Completed(key, holder string, token uint64, at time.Time) {
	k, m := h.record(key, at)
	defer h.mu.Unlock()
	k.reports = append(k.reports, report{lease{holder, token}, m, false})
}

// SeenDone records that an acquirer was told the key is done. The token is the
// one of the lease whose holder did the work, whoever stored the record last.
func (h *History) SeenDone(key string, token uint64, at time.Time) {
	k, m := h.record(key, at)
	defer h.mu.Unlock()
	k.reports = append(k.reports, report{lease{"", token}, m, true})
}

// Forget records that the retention of the key's completion has ended: from
// here on the key may be granted and completed again. Without it a completion
// lasts until the end of the history.
func (h *History) Forget(key string, at time.Time) {
	k, m := h.record(key, at)
	defer h.mu.Unlock()
	k.forgets = append(k.forgets, m)
}

// record locks the history, which the caller unlocks, and stamps one event.
func (h *History) record(key string, at time.Time) (*keyHistory, moment) {
	h.mu.Lock()
	if h.keys == nil {
		h.keys = make(map[string]*keyHistory)
	}
	k := h.keys[key]
	if k == nil {
		k = &keyHistory{name: key, pending: make(map[string]moment)}
		h.keys[key] = k
	}
	h.seq++
	return k, moment{at, h.seq}
}
