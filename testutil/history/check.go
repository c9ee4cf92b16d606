package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The rules a history is checked against, as they appear in errors.
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

type violation struct {
	rule, key, text string
}

func (v violation) Error() string {
	return fmt.Sprintf("%s: key %q: %s", v.rule, v.key, v.text)
}

// Check returns nil if a correct lock could have produced the history, else an
// error that joins one error for each violation and names the events. It
// demands, for every key:
//
//   - trusted leases do not overlap (they may touch);
//   - a token is greater than every token whose grant was reported before the
//     attempt started, and no token is granted twice;
//   - a resource accepts a write exactly if its token is not lower than one it
//     accepted before;
//   - all completions and all done reports name the same token, until Forget;
//   - no attempt that started after such a report is granted, until Forget;
//   - every end belongs to a grant;
//   - where attempts were marked, the history is linearizable as a lock whose
//     tokens grow. A search that takes too long counts as passed; Report
//     tells.
func (h *History) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	found, _ := h.verify()
	return errors.Join(found...)
}

// verify returns all violations, and the keys whose linearizability is not
// known.
func (h *History) verify() (found []error, unknown []string) {
	zero := h.zero()
	for _, name := range slices.Sorted(maps.Keys(h.keys)) {
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
	zero    time.Time
	windows []window
	found   []error
	unknown bool
}

func (c *checker) run() {
	c.windows = c.k.windows()
	c.strayEnds()
	c.overlaps()
	c.tokens()
	c.fences()
	c.agreement()
	c.regrants()
	// The search is the finer sieve and slow on bad histories.
	isClean := len(c.found) == 0
	if isClean && c.k.attempts > 0 {
		c.linearizable(linearSteps)
	}
}

func (c *checker) fail(rule, format string, args ...any) {
	c.found = append(c.found, violation{rule, c.k.name, fmt.Sprintf(format, args...)})
}

// window is the time during which one grant was trusted.
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

// isTrustedAt reports whether the window, which began before t, lasts longer than that.
func (w window) isTrustedAt(t time.Time) bool {
	return !w.ended || t.Before(w.end)
}

// compareEnds orders windows by their ends; a window without an end comes last.
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

// windows returns the grants with their ends, by the time of the grant. Equal
// instants are ordered by the end, so that an empty window comes first.
func (k *keyHistory) windows() []window {
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

func (c *checker) strayEnds() {
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

func (c *checker) overlaps() {
	var last *window // of the windows so far, the one that ends last
	for i := range c.windows {
		w := &c.windows[i]
		if w.endsBefore(w.at.at) {
			continue // over before it was reported: never trusted
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
		if compareEnds(*w, *last) > 0 {
			last = w
		}
	}
}

func (c *checker) tokens() {
	byToken := make(map[uint64]window)
	for _, w := range c.windows {
		if o, ok := byToken[w.token]; ok {
			c.fail(ruleDuplicate, "%s at %s, and %s at %s", o, c.when(o.at), w, c.when(w.at))
		}
		byToken[w.token] = w
	}

	c.tokensGrow()
}

func (c *checker) tokensGrow() {
	starts := slices.SortedFunc(slices.Values(c.windows), compareStarts)
	reported := slices.SortedFunc(slices.Values(c.windows), func(a, b window) int { return compare(a.at, b.at) })
	var top *window // greatest token reported before the start in question
	next := 0
	for _, w := range starts {
		for ; next < len(reported) && precedes(reported[next].at, w.grant); next++ {
			isGreater := top == nil || reported[next].token > top.token
			if isGreater {
				top = &reported[next]
			}
		}
		isTooSmall := top != nil && w.token <= top.token
		if isTooSmall {
			c.fail(ruleOrder, "%s started at %s, after %s was granted at %s",
				w, c.when(w.start), top, c.when(top.at))
		}
	}
}

// compareStarts orders windows by the starts of their attempts.
func compareStarts(a, b window) int {
	sameInstant := a.start.at.Equal(b.start.at)
	if sameInstant && a.marked != b.marked {
		return boolCompare(a.marked, b.marked) // precedes is stricter without a mark
	}
	return compare(a.start, b.start)
}

// precedes reports whether m surely happened before the attempt of g started.
// A mark was made before the attempt, so its rank counts; the rank of a report
// says nothing about the attempt behind it.
func precedes(m moment, g grant) bool {
	if g.marked {
		return m.before(g.start)
	}
	return m.at.Before(g.start.at)
}

func (c *checker) fences() {
	writes := slices.Clone(c.k.writes)
	slices.SortFunc(writes, func(a, b write) int { return compare(a.at, b.at) })
	var top *write // accepted with the greatest token
	for i := range writes {
		w := &writes[i]
		stale := top != nil && w.token < top.token
		switch {
		case w.accepted && stale:
			c.fail(ruleFence, "write with token %d accepted at %s, after token %d at %s",
				w.token, c.when(w.at), top.token, c.when(top.at))
		case !w.accepted && !stale:
			c.fail(ruleFence, "write with token %d refused at %s, though no greater one was accepted before",
				w.token, c.when(w.at))
		case w.accepted:
			top = w
		}
	}
}

// done returns the done reports in the order of time.
func (c *checker) done() []report {
	rs := slices.Clone(c.k.reports)
	slices.SortFunc(rs, func(a, b report) int { return compare(a.at, b.at) })
	return rs
}

func (c *checker) agreement() {
	type slot struct {
		retention int
		seen      bool
	}
	first := make(map[slot]report)
	for _, r := range c.done() {
		n := c.forgetsBefore(r.at)
		for _, seen := range []bool{false, true} {
			if o, ok := first[slot{n, seen}]; ok {
				c.agree(o, r)
			}
		}
		if _, ok := first[slot{n, r.seen}]; !ok {
			first[slot{n, r.seen}] = r
		}
	}
}

// agree checks that two reports name the same token.
func (c *checker) agree(o, r report) {
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

func (c *checker) regrants() {
	done := c.done()
	for _, w := range c.windows {
		i := slices.IndexFunc(done, func(r report) bool {
			return precedes(r.at, w.grant) && !c.forgotten(r.at, w.at)
		})
		if i >= 0 {
			r := done[i]
			c.fail(ruleRegrant, "%s started at %s, after the key was reported done by token %d at %s",
				w, c.when(w.start), r.token, c.when(r.at))
		}
	}
}

// forgotten reports whether nodes were told to forget between from and to.
func (c *checker) forgotten(from, to moment) bool {
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

// boolCompare orders false before true.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (c *checker) when(m moment) string { return c.since(m.at) }

func (c *checker) since(t time.Time) string { return "+" + t.Sub(c.zero).String() }
