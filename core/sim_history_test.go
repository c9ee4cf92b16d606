package core

import (
	"sort"
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil/history"
)

// A simHistory records what the holders saw, for the checks of package history, and traces it.
type simHistory struct {
	*sim.Trial
	mu     sync.Mutex
	events []simEvent
}

type simEvent struct {
	at     time.Time
	record func(h *history.History, at time.Time)
}

func (h *simHistory) add(record func(*history.History, time.Time)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, simEvent{time.Now(), record})
}

func (h *simHistory) attempt(key, holder string) {
	h.add(func(to *history.History, at time.Time) { to.Attempt(key, holder, at) })
}

func (h *simHistory) granted(lease *Lease, holder string) {
	key, token := lease.Key(), lease.FencingToken()
	h.Tracef("%s: %s is granted token %d", key, holder, token)
	h.add(func(to *history.History, at time.Time) { to.Granted(key, holder, token, at) })
}

func (h *simHistory) ended(lease *Lease, holder string) {
	key, token := lease.Key(), lease.FencingToken()
	if lease.Context().Err() != nil {
		h.Tracef("%s: %s has lost token %d", key, holder, token)
	} else {
		h.Tracef("%s: %s ends token %d", key, holder, token)
	}
	h.add(func(to *history.History, at time.Time) { to.Ended(key, holder, token, at) })
}

func (h *simHistory) wrote(key string, token uint64, accepted bool) {
	if !accepted {
		h.Tracef("%s: a write with token %d is refused", key, token)
	}
	h.add(func(to *history.History, at time.Time) { to.Wrote(key, token, at, accepted) })
}

func (h *simHistory) completed(key, holder string, token uint64) {
	h.Tracef("%s: %s has completed token %d", key, holder, token)
	h.add(func(to *history.History, at time.Time) { to.Completed(key, holder, token, at) })
}

func (h *simHistory) seenDone(key string, token uint64) {
	h.Tracef("%s: done with token %d", key, token)
	h.add(func(to *history.History, at time.Time) { to.SeenDone(key, token, at) })
}

func (h *simHistory) forget(key string) {
	h.Tracef("%s: its record may be lost", key)
	h.add(func(to *history.History, at time.Time) { to.Forget(key, at) })
}

// judge checks the history. It reports a violation at the first instant at which there was one.
func (h *simHistory) judge() {
	whole := h.until(len(h.events))
	if whole.Check() == nil {
		h.Tracef("%s", whole.Report())
		return
	}

	// A part of a correct history is correct, if it has all events of its last instant.
	i := sort.Search(len(h.events)-1, func(i int) bool { return h.partTo(i).Check() != nil })
	h.ViolationAt(h.events[i].at, "%v", h.partTo(i).Check())
}

// partTo returns the history up to the instant of event i.
func (h *simHistory) partTo(i int) *history.History {
	at := h.events[i].at
	n := sort.Search(len(h.events), func(j int) bool { return h.events[j].at.After(at) })
	return h.until(n)
}

// until returns the history of the first n events.
func (h *simHistory) until(n int) *history.History {
	var to history.History
	to.Wrote("", 0, h.Began, true) // errors give times since the first event
	for _, e := range h.events[:n] {
		e.record(&to, e.at)
	}
	return &to
}
