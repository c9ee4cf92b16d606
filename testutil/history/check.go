package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The rules for a history, as errors name them.
const (
	ruleOverlap   = "overlapping leases"
	ruleOrder     = "token not greater"
	ruleDuplicate = "duplicate token"
	ruleFence     = "fence"
	ruleCompleted = "two completions"
	ruleSeenDone  = "contradicting done reports"
	ruleRegrant   = "granted after done"
	ruleStrayEnd  = "end without grant"
	ruleLinear    = "not linearizable"
)

// violation is the error for one broken rule.
type violation struct {
	rule, key, text string
}

func (v violation) Error() string {
	return fmt.Sprintf("%s: key %q: %s", v.rule, v.key, v.text)
}

// Check returns nil if a correct lock could have produced the history.
// Otherwise it returns an error that joins one error for each violation, each
// of which names the events. Check requires for every key:
//
//   - trusted leases do not overlap (they may touch);
//   - a token is greater than every token whose grant was reported before the
//     attempt started, and no token is granted twice;
//   - a resource accepts a write exactly if its token is not lower than one it
//     accepted before;
//   - all completions and all done reports name the same token, until Forget;
//   - no attempt that started after such a report is granted, until Forget;
//   - every end belongs to a grant;
//   - if attempts were marked, the history is linearizable as a lock with
//     growing tokens. A search that takes too long counts as passed, and Report
//     names its key.
func (h *History) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, _ := h.verify()
	return errors.Join(found...)
}

// verify returns all violations, and the keys whose linearizability is unknown.
func (h *History) verify() (found []error, unknown []string) {
	zero := h.zero()
	for _, name := range slices.Sorted(maps.Keys(h.keys)) { // sorted, so that errors have a fixed order
		c := checker{k: h.keys[name], zero: zero}
		c.run()
		found = append(found, c.found...)
		if c.unknown {
			unknown = append(unknown, name)
		}
	}

	return found, unknown
}

// checker applies the rules to one key.
type checker struct {
	k       *keyHistory
	zero    time.Time // errors give times relative to this
	windows []window
	found   []error
	unknown bool // the search for a linear order was given up
}

func (c *checker) run() {
	c.windows = c.k.windows()
	c.checkEnds()
	c.checkOverlaps()
	c.checkTokens()
	c.checkWrites()
	c.checkReports()
	c.checkRegrants()

	// The search finds more, but it is slow on histories that break a simpler rule.
	isClean := len(c.found) == 0
	if isClean && c.k.attempts > 0 {
		c.checkLinearizable(maxLinearSteps)
	}
}

func (c *checker) fail(rule, format string, args ...any) {
	c.found = append(c.found, violation{rule, c.k.name, fmt.Sprintf(format, args...)})
}

// window is the time during which one lease was trusted: from its grant to its end, if it ended.
type window struct {
	grant
	end   time.Time
	ended bool
	lost  bool
}

func (w window) String() string {
	return fmt.Sprintf("%s with token %d", w.holder, w.token)
}

// endsBefore reports whether the window ended, and before t.
func (w window) endsBefore(t time.Time) bool {
	return w.ended && w.end.Before(t)
}

// isTrustedAt reports whether the window, which began before t, has not ended at t.
func (w window) isTrustedAt(t time.Time) bool {
	return !w.ended || t.Before(w.end)
}

// compareEnds orders windows by their ends. A window without an end comes last.
func compareEnds(a, b window) int {
	switch {
	case a.ended && b.ended:
		return a.end.Compare(b.end)
	case a.ended:
		return -1
	case b.ended:
		return 1
	}
	return 0
}

// windows returns the windows of all grants, by the time of the grant. Windows
// with the same grant time are ordered by their ends, so that an empty window
// comes first.
func (k *keyHistory) windows() []window {
	// A lease ends at its first end or completion.
	ends := make(map[lease]end)
	add := func(e end) {
		old, ok := ends[e.lease]
		isFirst := !ok || e.at.before(old.at)
		if isFirst {
			ends[e.lease] = e
		}
	}

	for _, e := range k.ends {
		add(e)
	}
	for _, r := range k.reports {
		if !r.seen {
			add(end{r.lease, r.at, false})
		}
	}

	var ws []window
	for _, g := range k.grants {
		e, ok := ends[g.lease]
		ws = append(ws, window{g, e.at.at, ok, e.lost})
	}

	slices.SortFunc(ws, func(a, b window) int {
		return cmp.Or(a.at.at.Compare(b.at.at), compareEnds(a, b))
	})

	return ws
}

// checkEnds finds ends of leases that were never granted.
func (c *checker) checkEnds() {
	granted := make(map[lease]bool)
	for _, g := range c.k.grants {
		granted[g.lease] = true
	}

	for _, e := range c.k.ends {
		if !granted[e.lease] {
			c.fail(ruleStrayEnd, "%s with token %d ended at %s but was never granted",
				e.holder, e.token, c.when(e.at))
		}
	}
}

// checkOverlaps finds leases that were granted while another was trusted.
func (c *checker) checkOverlaps() {
	var last *window // of the windows so far, the one that ends last
	for i := range c.windows {
		w := &c.windows[i]
		if w.endsBefore(w.at.at) {
			continue // it ended before its grant was reported, so it was never trusted
		}
		if last == nil {
			last = w
			continue
		}

		if last.isTrustedAt(w.at.at) {
			until := "the end of the history"
			if last.ended {
				until = c.since(last.end)
			}
			c.fail(ruleOverlap, "%s was granted at %s while %s, granted at %s, was trusted until %s",
				w, c.when(w.at), last, c.when(last.at), until)
		}

		// If w ends before last, each later window that overlaps w also overlaps last.
		if compareEnds(*w, *last) > 0 {
			last = w
		}
	}
}

// checkTokens finds tokens that were granted twice, and tokens that did not grow.
func (c *checker) checkTokens() {
	byToken := make(map[uint64]window)
	for _, w := range c.windows {
		if o, ok := byToken[w.token]; ok {
			c.fail(ruleDuplicate, "%s at %s, and %s at %s", o, c.when(o.at), w, c.when(w.at))
		}
		byToken[w.token] = w
	}

	c.checkTokensGrow()
}

// checkTokensGrow compares each token with the greatest one that was reported before its attempt started.
func (c *checker) checkTokensGrow() {
	starts := slices.SortedFunc(slices.Values(c.windows), compareStarts)
	reported := slices.SortedFunc(slices.Values(c.windows), func(a, b window) int { return compare(a.at, b.at) })

	var greatest *window // the one with the greatest token of reported[:next]
	next := 0
	for _, w := range starts {
		// Starts are in the order of time, so the reports before one are also before the next.
		for ; next < len(reported) && precedes(reported[next].at, w.grant); next++ {
			isGreater := greatest == nil || reported[next].token > greatest.token
			if isGreater {
				greatest = &reported[next]
			}
		}

		isTooSmall := greatest != nil && w.token <= greatest.token
		if isTooSmall {
			c.fail(ruleOrder, "%s started at %s, after %s was granted at %s",
				w, c.when(w.start), greatest, c.when(greatest.at))
		}
	}
}

// compareStarts orders windows by the starts of their attempts. At the same instant, starts without a mark come first,
// because fewer moments precede them.
func compareStarts(a, b window) int {
	sameInstant := a.start.at.Equal(b.start.at)
	if sameInstant && a.marked != b.marked {
		return compareBools(a.marked, b.marked)
	}
	return compare(a.start, b.start)
}

// precedes reports whether m surely happened before the attempt of g started.
// A mark is made before the attempt, so the order of recording counts for
// events of the same instant. A grant without a mark is recorded after the
// attempt, so that order means nothing.
func precedes(m moment, g grant) bool {
	if g.marked {
		return m.before(g.start)
	}
	return m.at.Before(g.start.at)
}

// checkWrites finds writes that the resource should have refused, and refusals of writes that it should have accepted.
func (c *checker) checkWrites() {
	// A write is stale if the resource has accepted a greater token before.
	writes := slices.Clone(c.k.writes)
	slices.SortFunc(writes, func(a, b write) int { return compare(a.at, b.at) })

	var greatest *write // the accepted one with the greatest token
	for i := range writes {
		w := &writes[i]
		stale := greatest != nil && w.token < greatest.token
		switch {
		case w.accepted && stale:
			c.fail(ruleFence, "write with token %d accepted at %s, after token %d at %s",
				w.token, c.when(w.at), greatest.token, c.when(greatest.at))
		case !w.accepted && !stale:
			c.fail(ruleFence, "write with token %d refused at %s, though no greater one was accepted before",
				w.token, c.when(w.at))
		case w.accepted:
			greatest = w
		}
	}
}

// sortedReports returns the done reports in the order of time.
func (c *checker) sortedReports() []report {
	rs := slices.Clone(c.k.reports)
	slices.SortFunc(rs, func(a, b report) int { return compare(a.at, b.at) })
	return rs
}

// checkReports finds done reports of one retention that name different tokens.
func (c *checker) checkReports() {
	type slot struct {
		retention int
		seen      bool
	}

	// Each report is compared with the first of its retention from a holder, and with the first from an acquirer.
	first := make(map[slot]report)
	for _, r := range c.sortedReports() {
		retention := c.forgetsBefore(r.at)
		for _, seen := range []bool{false, true} {
			if o, ok := first[slot{retention, seen}]; ok {
				c.checkAgreement(o, r)
			}
		}
		if _, ok := first[slot{retention, r.seen}]; !ok {
			first[slot{retention, r.seen}] = r
		}
	}
}

// checkAgreement checks that two reports name the same token.
func (c *checker) checkAgreement(o, r report) {
	if o.token == r.token {
		return
	}

	rule := ruleCompleted
	if o.seen || r.seen {
		rule = ruleSeenDone
	}

	c.fail(rule, "done by token %d reported at %s, and by token %d at %s",
		o.token, c.when(o.at), r.token, c.when(r.at))
}

// forgetsBefore returns how often the key was forgotten before m.
func (c *checker) forgetsBefore(m moment) (n int) {
	for _, f := range c.k.forgets {
		if f.before(m) {
			n++
		}
	}
	return n
}

// checkRegrants finds grants to attempts that started after the key was reported done.
func (c *checker) checkRegrants() {
	reports := c.sortedReports()
	for _, w := range c.windows {
		i := slices.IndexFunc(reports, func(r report) bool {
			return precedes(r.at, w.grant) && !c.isForgotten(r.at, w.at)
		})
		if i >= 0 {
			r := reports[i]
			c.fail(ruleRegrant, "%s started at %s, after the key was reported done by token %d at %s",
				w, c.when(w.start), r.token, c.when(r.at))
		}
	}
}

// isForgotten reports whether the key was forgotten between from and to.
func (c *checker) isForgotten(from, to moment) bool {
	return slices.ContainsFunc(c.k.forgets, func(f moment) bool {
		return from.before(f) && f.before(to)
	})
}

func compare(a, b moment) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// when returns m relative to the beginning of the history, such as "+1.5s".
func (c *checker) when(m moment) string { return c.since(m.at) }

func (c *checker) since(t time.Time) string { return "+" + t.Sub(c.zero).String() }
