package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/testutil/history"
)

// A judge decides, by what everybody was told, whether there were two holders of a key at a time, more holders of a
// semaphore than it has permits, tokens that went back, or a stale write that was accepted. It keeps the latest leases
// and writes; the history that it checks is made of these anew each time, because replicas are heard in any order.
type judge struct {
	holds   []*hold
	writes  []fenced
	checked int    // leases and writes that were dropped after they had been found right
	found   string // the first violation; it stays until reset
}

// kept is how many leases, and how many writes, are kept.
const kept = 2000

// A hold is a lease, as its holder was told of it. A slot of a semaphore is a key of its own.
type hold struct {
	key, replica string
	limited      string // the key of the semaphore, if it is a slot of one
	token        uint64
	at, until    float64
	ended        float64 // 0 = not that anybody knows
	lost         bool
}

// A fenced is a read or a write that the store accepted or refused by its token.
type fenced struct {
	key      string
	token    uint64
	at       float64
	accepted bool
}

// see takes an event, in the order in which its replica told it; life names the process.
func (j *judge) see(life string, e Event) {
	switch e.Kind {
	case isGrant:
		if e.Until <= e.At { // paused before it could say so: it never acted on it, and others may have been granted the key
			return
		}
		h := &hold{key: e.lock(), replica: life, token: e.Token, at: e.At, until: e.Until}
		if e.Slot != nil {
			h.limited = e.Key
		}
		j.holds = append(j.holds, h)
	case isRenew:
		if h := j.hold(life, e); h != nil {
			h.until = max(h.until, e.Until)
		}
	case isEnd, isLost:
		if h := j.hold(life, e); h != nil {
			h.ended, h.lost = e.At, e.Kind == isLost
		}
	case isKilled:
		for _, h := range j.holds {
			if h.replica == life && h.ended == 0 {
				h.ended, h.lost = e.At, true
			}
		}
	case isWrite:
		j.writes = append(j.writes, fenced{e.Key, e.Token, e.At, e.Text != "refused"})
	}
}

func (j *judge) hold(life string, e Event) *hold {
	for _, h := range slices.Backward(j.holds) {
		if h.replica == life && h.key == e.lock() && h.token == e.Token {
			return h
		}
	}
	return nil
}

// over is when the trust in a lease ended, if it had by then: with its end or its loss, the death of its replica, or when it
// ran out without having been renewed, be it that nobody was awake to notice.
func (h *hold) over(by float64) (at float64, ok bool) {
	switch {
	case h.ended != 0:
		return min(h.ended, h.until), true
	case h.until <= by:
		return h.until, true
	}
	return 0, false
}

// check judges what has happened until then. All events up to there must have been seen.
func (j *judge) check(until float64) {
	if j.found != "" {
		return
	}
	var h history.History
	for _, x := range j.holds {
		if x.at > until {
			continue
		}
		h.Granted(x.key, x.replica, x.token, instant(x.at))
		if end, ok := x.over(until); ok && x.lost {
			h.Lost(x.key, x.replica, x.token, instant(end))
		} else if ok {
			h.Ended(x.key, x.replica, x.token, instant(end))
		}
	}
	for _, w := range j.writes {
		if w.at <= until {
			h.Wrote(w.key, w.token, instant(w.at), w.accepted)
		}
	}
	if err := h.Check(); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		j.fault(first)
		return
	}
	if text := j.tooMany(until); text != "" {
		j.fault(text)
		return
	}
	j.drop(until)
}

// fault is a violation, if it is the first.
func (j *judge) fault(text string) { j.found = cmp.Or(j.found, text) }

// drop forgets what is over and right, but for what later leases and writes are compared with: the last lease of each
// key, and the accepted write with the greatest token.
func (j *judge) drop(until float64) {
	if n := len(j.holds) - kept; n > 0 {
		last := map[string]*hold{}
		for _, h := range j.holds {
			if o := last[h.key]; o == nil || o.token < h.token {
				last[h.key] = h
			}
		}
		j.holds = slices.DeleteFunc(j.holds, func(h *hold) bool {
			_, over := h.over(until)
			gone := n > 0 && over && h.at <= until && h != last[h.key]
			if gone {
				n--
				j.checked++
			}
			return gone
		})
	}
	if n := len(j.writes) - kept; n > 0 {
		j.dropWrites(n)
	}
}

// dropWrites forgets the first n writes. The store tells them in order, so all that is left is later than these.
func (j *judge) dropWrites(n int) {
	greatest := map[string]fenced{}
	for _, w := range j.writes[:n] {
		if w.accepted && w.token >= greatest[w.key].token {
			greatest[w.key] = w
		}
	}
	keep := slices.SortedFunc(maps.Values(greatest), func(a, b fenced) int { return cmp.Compare(a.at, b.at) })
	j.checked += n - len(keep)
	j.writes = append(keep, j.writes[n:]...)
}

// reset forgets the violation and what it was made of. Who holds a key now is not held against later holders.
func (j *judge) reset() {
	j.dropWrites(len(j.writes))
	j.checked += len(j.holds)
	j.holds, j.found = nil, ""
}

// held returns the keys that a process holds.
func (j *judge) held(life string, now float64) []string {
	keys := []string{}
	for _, h := range j.holds {
		if _, over := h.over(now); h.replica == life && !over && h.at <= now {
			keys = append(keys, h.key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (j *judge) verdict() VerdictState {
	v := VerdictState{OK: j.found == "", Text: j.found, Checked: j.checked + len(j.holds) + len(j.writes)}
	if v.OK {
		v.Text = fmt.Sprintf("never two holders, never more than %d calls of the API, no token went back, no stale write was accepted, no update was lost under the lock, no tick or task ran twice: %d leases and writes", permits, v.Checked)
	}
	return v
}

// tickOf is the name of a tick in events.
func tickOf(t time.Time) string { return t.UTC().Format(time.RFC3339) }
