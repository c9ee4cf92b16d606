package history

import (
	"fmt"
	"strings"
	"time"
)

// Report returns a summary of the history for people, in a few lines that end
// with the verdict of Check.
func (h *History) Report() string {
	h.mu.Lock()
	defer h.mu.Unlock()

	var s summary
	for _, k := range h.keys {
		s.add(k)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "keys %d, ", len(h.keys))
	s.write(&b)

	found, unknown := h.verify()
	for _, key := range unknown {
		fmt.Fprintf(&b, "key %q: linearizability unknown, the search took more than %d steps\n", key, maxLinearSteps)
	}

	if len(found) == 0 {
		b.WriteString("verdict: clean\n")
		return b.String()
	}

	for _, err := range found {
		fmt.Fprintf(&b, "%v\n", err)
	}

	fmt.Fprintf(&b, "verdict: %d violations\n", len(found))
	return b.String()
}

// summary has the counts that Report prints.
type summary struct {
	attempts, grants, ended, lost    int
	writes, refused, completed, seen int
	shortest, longest                time.Duration
	low, high                        uint64
}

// write writes the counts, without parts that are empty.
func (s *summary) write(b *strings.Builder) {
	fmt.Fprintf(b, "attempts marked %d, grants %d, ended %d (lost %d), still held %d\n",
		s.attempts, s.grants, s.ended, s.lost, s.grants-s.ended)
	if s.ended > 0 {
		fmt.Fprintf(b, "holds: shortest %s, longest %s\n",
			s.shortest.Round(time.Millisecond), s.longest.Round(time.Millisecond))
	}
	if s.grants > 0 {
		fmt.Fprintf(b, "tokens: %d to %d\n", s.low, s.high)
	}
	if s.writes > 0 {
		fmt.Fprintf(b, "writes: %d, refused %d\n", s.writes, s.refused)
	}
	if s.completed+s.seen > 0 {
		fmt.Fprintf(b, "completions %d, seen done %d\n", s.completed, s.seen)
	}
}

// add counts the events of a key.
func (s *summary) add(k *keyHistory) {
	s.attempts += k.attempts
	for _, w := range k.windows() {
		s.addWindow(w)
	}

	for _, w := range k.writes {
		s.writes++
		if !w.accepted {
			s.refused++
		}
	}

	for _, r := range k.reports {
		if r.seen {
			s.seen++
		} else {
			s.completed++
		}
	}
}

// addWindow counts a grant and its end.
func (s *summary) addWindow(w window) {
	if s.grants == 0 {
		s.low = w.token
	}

	s.low = min(s.low, w.token)
	s.high = max(s.high, w.token)
	s.grants++
	if !w.ended {
		return
	}

	hold := max(0, w.end.Sub(w.at.at))
	if s.ended == 0 {
		s.shortest = hold
	}

	s.shortest = min(s.shortest, hold)
	s.longest = max(s.longest, hold)
	s.ended++
	if w.lost {
		s.lost++
	}
}

// zero returns the first instant of the history; errors give times relative to it.
func (h *History) zero() time.Time {
	var first time.Time
	add := func(m moment) {
		isFirst := first.IsZero() || m.at.Before(first)
		if isFirst {
			first = m.at
		}
	}

	for _, k := range h.keys {
		for _, g := range k.grants {
			add(g.start)
		}
		for _, e := range k.ends {
			add(e.at)
		}
		for _, w := range k.writes {
			add(w.at)
		}
		for _, r := range k.reports {
			add(r.at)
		}
	}

	return first
}
