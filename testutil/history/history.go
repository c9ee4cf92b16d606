package history

import (
	"sync"
	"time"
)

// History records the results that the users of a lock received, and decides
// afterwards whether a correct lock could have returned them. The zero value is
// ready for use, and all methods may be called from any goroutine.
//
// Events are ordered by the instants given to them; events of the same instant
// are ordered by the calls. All instants must come from clocks that agree: one
// process, one host, or one fake clock.
type History struct {
	mu   sync.Mutex // guards all fields, and the keyHistories
	seq  int        // of the last event
	keys map[string]*keyHistory
}

// keyHistory holds the events of one key; keys never influence each other.
type keyHistory struct {
	name     string
	attempts int               // the number of marks
	pending  map[string]moment // marks without a grant, by holder
	grants   []grant
	ends     []end
	writes   []write
	reports  []report
	forgets  []moment
}

// moment is an instant, with the rank of its recording as a tie-break. The rank
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
	start  moment // of the attempt
	marked bool   // start was recorded by Attempt
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

// report is a message to a user of the lock that the key is done.
type report struct {
	lease
	at   moment
	seen bool // by an acquirer; otherwise by the holder that completed the key
}

// Attempt marks the start of an acquisition; call it before Acquire. It is
// optional. The mark belongs to the next Granted of the same key and holder. If
// attempts fail, the latest mark counts. A grant without a mark is assumed to
// have started when it was reported. A holder name must not be used for two
// acquisitions of one key at a time.
func (h *History) Attempt(key, holder string, at time.Time) {
	k, m := h.lockAndRecord(key, at)
	defer h.mu.Unlock()
	k.attempts++
	k.pending[holder] = m
}

// Granted records that holder received a lease on key; call it after Acquire
// returned.
func (h *History) Granted(key, holder string, token uint64, at time.Time) {
	k, m := h.lockAndRecord(key, at)
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

// Lost is Ended for a lease that its holder lost; at is the end of its validity
// and may lie in the past. It differs from Ended only in Report.
func (h *History) Lost(key, holder string, token uint64, at time.Time) {
	h.end(key, holder, token, at, true)
}

func (h *History) end(key, holder string, token uint64, at time.Time, lost bool) {
	k, m := h.lockAndRecord(key, at)
	defer h.mu.Unlock()
	k.ends = append(k.ends, end{lease{holder, token}, m, lost})
}

// Wrote records an attempted write to a resource that checks fencing tokens,
// and whether the resource accepted it. Call it in the order in which the
// resource decided, with the instant of the decision.
func (h *History) Wrote(key string, token uint64, at time.Time, accepted bool) {
	k, m := h.lockAndRecord(key, at)
	defer h.mu.Unlock()
	k.writes = append(k.writes, write{token, m, accepted})
}

// Completed records that the completion by holder was confirmed. It also ends
// the lease, unless the lease ended earlier.
func (h *History) Completed(key, holder string, token uint64, at time.Time) {
	k, m := h.lockAndRecord(key, at)
	defer h.mu.Unlock()
	k.reports = append(k.reports, report{lease{holder, token}, m, false})
}

// SeenDone records that an acquirer received the answer that the key is done.
// token is the token of the lease under which the work was done, even if
// another client stored the record last.
func (h *History) SeenDone(key string, token uint64, at time.Time) {
	k, m := h.lockAndRecord(key, at)
	defer h.mu.Unlock()
	k.reports = append(k.reports, report{lease{"", token}, m, true})
}

// Forget records that the retention of the key's completion has ended: from
// here on the key may be granted and completed again. Without it a completion
// lasts until the end of the history.
func (h *History) Forget(key string, at time.Time) {
	k, m := h.lockAndRecord(key, at)
	defer h.mu.Unlock()
	k.forgets = append(k.forgets, m)
}

// lockAndRecord locks h.mu, which the caller must unlock, and returns the key's
// history and the moment of a new event.
func (h *History) lockAndRecord(key string, at time.Time) (*keyHistory, moment) {
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
