package nemesis

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/testutil/history"
)

// judge returns the violations in the events of a part. It is a pure function, so that recorded events can be judged again.
// summary has the counts of the checker of histories.
func judge(events []event) (violations []string, summary string) {
	j := judgement{events: events}

	for _, e := range events {
		if e.Kind == isForgot {
			j.forgets = append(j.forgets, e)
		}
	}

	summary = j.history()
	j.referee()
	j.permits()
	j.cooldowns()
	j.revocations()
	j.ticks()
	j.complaints()
	return j.found, summary
}

type judgement struct {
	events  []event
	forgets []event // a server lost some of its memory, from Asked to At
	found   []string
}

func (j *judgement) fail(format string, args ...any) {
	j.found = append(j.found, fmt.Sprintf(format, args...))
}

// forgotBetween reports whether a server lost some of its memory in a time.
func (j *judgement) forgotBetween(from, to time.Time) bool {
	return slices.ContainsFunc(j.forgets, func(f event) bool { return !f.At.Before(from) && !f.Asked.After(to) })
}

// history gives the checker of histories the results of clients and the decisions of the referee.
func (j *judgement) history() (summary string) {
	var h history.History
	lost := map[leaseID]bool{}

	for _, e := range j.events {
		if e.Kind == isLost {
			lost[e.lease()] = true
		}
	}

	for _, e := range j.events {
		holder := fmt.Sprint(e.By, "#", e.Call)
		switch e.Kind {
		case isGranted:
			if !e.Asked.IsZero() {
				h.Attempt(e.Key, holder, e.Asked)
			}
			h.Granted(e.Key, holder, e.Token, e.At)
			end := h.Ended
			if lost[e.lease()] {
				end = h.Lost
			}
			end(e.Key, holder, e.Token, e.Until)
		case isWrote:
			h.Wrote(e.Key, e.Token, e.At, e.Err == "")
		case isDone:
			h.Completed(e.Key, holder, e.Token, e.At)
			j.forgetRecord(&h, e)
		default: // of no interest to a history
		}
	}

	if err := h.Check(); err != nil {
		j.found = append(j.found, lines(err)...)
	}

	return h.Report()
}

// forgetRecord says when servers may have lost a record. One that lost its memory before Once returned may have had the
// record already.
func (j *judgement) forgetRecord(h *history.History, done event) {
	for _, f := range j.forgets {
		if f.At.After(done.Asked) {
			h.Forget(done.Key, latest(f.Asked, done.At))
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// lines splits errors that are joined.
func lines(err error) (all []string) {
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, e.Error())
		}
		return all
	}

	return []string{err.Error()}
}

// A stint is how long a worker was under a lease: a context that was live at two looks was so in between.
type stint struct {
	leaseID
	semaphore   string
	from, until time.Time
}

// seen returns the stints that the referee saw.
func (j *judgement) seen() (all []*stint) {
	stints := map[leaseID]*stint{}

	for _, e := range j.events {
		if e.Kind != isWrote {
			continue
		}
		s := stints[e.lease()]
		if s == nil {
			s = &stint{e.lease(), e.Semaphore, e.Asked, e.Asked}
			stints[e.lease()] = s
			all = append(all, s)
		}
		s.until = latest(s.until, e.Asked)
	}

	return all
}

// reported returns the stints that the clients reported.
func (j *judgement) reported() (all []*stint) {
	for _, e := range j.events {
		if e.Kind == isGranted {
			all = append(all, &stint{e.lease(), e.Semaphore, e.At, e.Until})
		}
	}

	return all
}

// referee judges the referee's book, without the log of the clients: no two workers are on a key at a time, and a later one
// has the greater token.
func (j *judgement) referee() {
	byKey := map[string][]*stint{}

	for _, s := range j.seen() {
		byKey[s.key] = append(byKey[s.key], s)
	}

	for key, all := range byKey {
		slices.SortFunc(all, func(a, b *stint) int { return a.from.Compare(b.from) })
		last := all[0]
		for _, s := range all[1:] {
			if last.until.After(s.from) {
				j.fail("the referee saw two workers on %q: %s (token %d) for %v beside %s (token %d)",
					key, last.by, last.token, last.until.Sub(s.from), s.by, s.token)
			}
			if s.token <= last.token {
				j.fail("the referee saw token %d of %q after token %d", s.token, key, last.token)
			}
			if s.until.After(last.until) {
				last = s
			}
		}
	}
}

// permits: there are never more holders of the slots of a semaphore than it has permits, by the log of the clients and by
// the referee's book.
func (j *judgement) permits() {
	j.countHolders("the clients reported", j.reported())
	j.countHolders("the referee saw", j.seen())
}

// countHolders counts the stints of each semaphore at a time: the greatest number begins with one of them.
func (j *judgement) countHolders(source string, all []*stint) {
	bySemaphore := map[string][]*stint{}

	for _, s := range all {
		if s.semaphore != "" {
			bySemaphore[s.semaphore] = append(bySemaphore[s.semaphore], s)
		}
	}

	for key, stints := range bySemaphore {
		for _, s := range stints {
			holders := 1
			for _, other := range stints {
				if other != s && !other.from.After(s.from) && other.until.After(s.from) {
					holders++
				}
			}
			if holders > permits {
				j.fail("%s too many holders of %q: %d, the last is %s with %q (token %d)", source, key, holders, s.by, s.key, s.token)
			}
		}
	}
}

// confirmed bounds the duration of a release that ends within the TTL: a context ends earlier than its lease by more than
// this.
const confirmed = 400 * time.Millisecond

// window bounds the error of the clock of a server that votes. A step within it moves the end of a cooldown.
const window = 500 * time.Millisecond

// cooldowns: a key that was released with a cooldown, before its TTL was over, is not granted before the cooldown's end.
func (j *judgement) cooldowns() {
	grants := map[string][]event{}
	ended := map[leaseID]time.Time{}

	for _, e := range j.events {
		if e.Kind == isGranted {
			grants[e.Key] = append(grants[e.Key], e)
			ended[e.lease()] = e.Until
		}
	}

	for _, e := range j.events {
		began := e.Asked
		counts := e.Kind == isReleased && e.For > 0 && e.Err == "" && e.At.Sub(ended[e.lease()]) < confirmed
		if !counts {
			continue
		}
		for _, g := range grants[e.Key] {
			end := began.Add(e.For)
			if j.clocksMovedBetween(began, g.At) {
				end = end.Add(-window)
			}
			tooSoon := g.At.After(e.At) && g.At.Before(end)
			if tooSoon && !j.forgotBetween(began, g.At) {
				j.fail("%q was granted to %s %v after its release with a cooldown of %v", e.Key, g.By, g.At.Sub(began), e.For)
			}
		}
	}
}

// revocations: the holder of a revoked lease does not act on it for longer than the revocation says, if the nodes' clocks
// are right.
func (j *judgement) revocations() {
	type holding struct {
		key   string
		token uint64
	}

	until := map[holding]event{}

	for _, e := range j.events {
		if e.Kind == isGranted {
			until[holding{e.Key, e.Token}] = e
		}
	}

	for _, e := range j.events {
		if e.Kind != isRevoked {
			continue
		}
		held, end := until[holding{e.Key, e.Token}], e.At.Add(e.For)
		if held.Until.After(end) && !j.forgotBetween(e.Asked, end) && !j.clocksMovedBetween(e.Asked, end) {
			j.fail("%s held %q (token %d) for %v after its revocation, which said %v", held.By, e.Key, e.Token, held.Until.Sub(e.At), e.For)
		}
	}
}

// clocksMovedBetween reports whether a clock of a server was wrong in a time.
func (j *judgement) clocksMovedBetween(from, to time.Time) bool {
	return slices.ContainsFunc(j.events, func(e event) bool {
		return e.Kind == isHealed && e.Key == string(ofClocks) && e.Asked.Before(to) && e.At.After(from)
	})
}

// ticks: no tick of a job starts twice.
func (j *judgement) ticks() {
	type tick struct {
		job string
		at  int64
	}

	started := map[tick]event{}

	for _, e := range j.events {
		if e.Kind != isStarted {
			continue
		}
		of := tick{e.Key, e.Tick.UnixNano()}
		first, again := started[of]
		started[of] = e
		// The record of a start is written a little before the run begins.
		if again && !j.forgotBetween(first.At.Add(-ttl), e.At) {
			j.fail("tick %s of %s was started by %s and again, %v later, by %s",
				e.Tick.Format(time.TimeOnly), e.Key, first.By, e.At.Sub(first.At), e.By)
		}
	}
}

// complaints are violations that were seen when they happened.
func (j *judgement) complaints() {
	for _, e := range j.events {
		switch e.Kind {
		case isWronged:
			j.fail("the referee refused %s, the holder of %q with token %d, %s", e.By, e.Key, e.Token, e.Text)
		case isStuck:
			j.fail("client %s was granted nothing for %v after all faults were over", e.By, patience)
		default: // no complaint
		}
	}
}

// kindOf returns the kind of a violation, for counting.
func kindOf(violation string) string {
	kinds := []string{
		"overlapping leases", "two workers", "fence", "token", "cooldown", "revocation", "tick", "granted after done", "too many holders",
		"granted nothing",
	}

	for _, k := range kinds {
		if strings.Contains(violation, k) {
			return k
		}
	}

	return "other"
}
