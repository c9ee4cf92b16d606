package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type column int

const (
	ofHolder column = iota
	ofCallers
)

func (c column) String() string { return [...]string{"holder", "everybody else"}[c] }

// A row is a row of the document that three servers can show.
type row struct {
	what     string // how its first cell begins
	promises []promise
	left     []left
}

// A promise is a passage of the document that is judged.
type promise struct {
	column column
	says   string // a number of seconds is a #
	judge  judge
}

// left is a passage that nothing here judges, and why: it is advice or a permission, or a test shows it.
type left struct {
	column    column
	says, why string
}

// A judge says whether a promise was kept, by what was seen in a scene and the figures that the document has. It is a pure
// function, so that recorded events can be judged again.
type judge func(s seen, f figures) finding

// A finding is what was seen of a promise.
type finding struct {
	text   string
	broken bool
	excuse time.Duration // a machine on which timers are late by this much or more explains what was seen; 0: nothing does
}

type verdict string

const (
	kept      verdict = "kept"
	broken    verdict = "BROKEN"
	notJudged verdict = "not judged"
)

// on returns the verdict on a machine whose timers were late by so much.
func (f finding) on(late time.Duration) verdict {
	switch {
	case !f.broken:
		return kept
	case f.excuse > 0 && late >= f.excuse:
		return notJudged
	}
	return broken
}

const (
	// rounding is by how much a time may differ from what the document says, since that rounds.
	rounding = 350 * time.Millisecond
	// atOnce is what the document calls so.
	atOnce = 500 * time.Millisecond
	// steps is in how many steps of a lock, each of which may be late, a time may grow.
	steps = 4
	// tooSlow is how late timers are on a machine on which a lease may be lost, or a limit of seconds be missed.
	tooSlow = time.Second
)

// seen is what was seen in a scene.
type seen struct {
	events []event // by their times
}

// late returns by how much timers were late. A process that was stopped on purpose does not count for as long.
func (s seen) late() (most time.Duration) {
	for i, e := range s.events {
		if e.Kind == isLate && !s.wasStopped(e, i) {
			most = max(most, e.Took)
		}
	}
	return most
}

// wasStopped reports whether a process has been stopped by the program since shortly before a late timer should have fired.
func (s seen) wasStopped(late event, i int) bool {
	return slices.ContainsFunc(s.events[:i], func(e event) bool {
		return e.Kind == isStruck && e.Text == stops && e.Key == late.Process && !e.At.Before(late.At.Add(-late.Took-time.Second))
	})
}

// stops is the text of a fault that stops the process Key.
const stops = "stops"

// filter is a condition on events.
type filter func(event) bool

func is(k kind, op string) filter { return func(e event) bool { return e.Kind == k && e.Op == op } }

func (f filter) and(g filter) filter { return func(e event) bool { return f(e) && g(e) } }

func failed(class string) filter { return func(e event) bool { return e.Err == class } }

func after(t time.Time) filter { return func(e event) bool { return !e.At.Before(t) } }

func before(t time.Time) filter { return func(e event) bool { return e.At.Before(t) } }

func (s seen) first(match filter) (event, bool) {
	i := slices.IndexFunc(s.events, match)
	if i < 0 {
		return event{}, false
	}
	return s.events[i], true
}

func (s seen) all(match filter) (found []event) {
	for _, e := range s.events {
		if match(e) {
			found = append(found, e)
		}
	}
	return found
}

// struck returns when a fault began.
func (s seen) struck(fault string) time.Time {
	e, _ := s.first(is(isStruck, fault))
	return e.At
}

// healed returns when a fault ended.
func (s seen) healed(fault string) time.Time {
	e, _ := s.first(is(isHealed, fault))
	return e.At
}

// end returns when the last event was.
func (s seen) end() time.Time {
	if len(s.events) == 0 {
		return time.Time{}
	}
	return s.events[len(s.events)-1].At
}

func good(format string, args ...any) finding { return finding{text: fmt.Sprintf(format, args...)} }

// bad is a finding that only a machine that is too slow explains.
func bad(format string, args ...any) finding {
	return finding{text: fmt.Sprintf(format, args...), broken: true, excuse: tooSlow}
}

// unsafe is a finding that nothing explains.
func unsafe(format string, args ...any) finding {
	return finding{text: fmt.Sprintf(format, args...), broken: true}
}

// within judges a time.
func within(took, from, to time.Duration) finding {
	text := seconds(took)
	beyond := max(from-rounding-took, took-to-rounding)
	if beyond <= 0 {
		return good("%s", text)
	}
	return finding{text: text, broken: true, excuse: max(beyond/steps, time.Millisecond)}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// both is the first finding that is broken, or else all.
func both(findings ...finding) finding {
	var texts []string
	for _, f := range findings {
		if f.broken {
			return f
		}
		if !slices.Contains(texts, f.text) {
			texts = append(texts, f.text)
		}
	}
	return good("%s", strings.Join(texts, ", "))
}

// all makes one judge of several.
func all(judges ...judge) judge {
	return func(s seen, f figures) finding {
		var findings []finding
		for _, j := range judges {
			findings = append(findings, j(s, f))
		}
		return both(findings...)
	}
}

// timed judges how long after the beginning of a fault an event came, by two figures: from, to.
func timed(fault string, match filter, nothing string) judge {
	return func(s seen, f figures) finding {
		began := s.struck(fault)
		e, ok := s.first(match.and(after(began)))
		if !ok {
			return bad("%s", nothing)
		}
		return within(e.At.Sub(began), f[0], f[1])
	}
}

// ends judges when the context of a lease ended, and that it was lost.
func ends(op string) judge {
	return timed("", is(isEnded, op).and(failed("lost")), "the context did not end as lost")
}

// grants judges when a call was granted its key.
func grants(op string) judge { return timed("", is(isGranted, op), "not granted") }

// keeps judges that leases were not lost.
func keeps(ops ...string) judge {
	return func(s seen, _ figures) finding {
		for _, op := range ops {
			if _, ok := s.first(is(isGranted, op)); !ok {
				return bad("%s never began", op)
			}
			if e, ok := s.first(is(isEnded, op).and(failed("lost"))); ok {
				return bad("%s was lost (%s) after %s", op, e.Reason, seconds(e.At.Sub(s.struck(""))))
			}
		}
		return good("not lost")
	}
}

// grantsAtOnce judges that calls were granted their keys without a wait.
func grantsAtOnce(ops ...string) judge {
	return func(s seen, _ figures) finding {
		var findings []finding
		for _, op := range ops {
			asked, _ := s.first(is(isAsked, op))
			granted, ok := s.first(is(isGranted, op))
			if !ok {
				return bad("%s: not granted", op)
			}
			findings = append(findings, within(granted.At.Sub(asked.At), 0, atOnce-rounding))
		}
		return both(findings...)
	}
}

// waits judges that a call was neither granted nor refused before a time.
func waits(op string, until func(seen) time.Time) judge {
	return func(s seen, _ figures) finding {
		asked, ok := s.first(is(isAsked, op))
		if !ok {
			return bad("%s: not asked", op)
		}
		for _, e := range s.events {
			if (e.Kind == isGranted || e.Kind == isRefused) && e.Op == op && e.At.Before(until(s)) {
				return bad("%s: %s after %s", op, e.Kind, seconds(e.At.Sub(asked.At)))
			}
		}
		return good("waits")
	}
}

// fails judges that a call failed with an error of a class, and how long it took, by two figures.
func fails(op, class string) judge {
	return func(s seen, f figures) finding {
		e, ok := s.first(is(isRefused, op))
		if !ok || e.Err != class {
			return bad("%s: %q instead of %q", op, e.Err, class)
		}
		return within(e.Took, f[0], f[1])
	}
}

// returns judges the error that a call on a lease returned: empty for none, and any reason if that is empty.
func returns(k kind, op, class, reason string) judge {
	return func(s seen, _ figures) finding {
		e, ok := s.first(is(k, op))
		switch {
		case !ok:
			return bad("%s did not return", k)
		case e.Err != class || reason != "" && e.Reason != reason:
			return bad("%s: %q %s", k, e.Err, e.Reason)
		}
		return good("%s", strings.TrimSpace(strings.Join([]string{strings.TrimSpace(e.Err), e.Reason}, " ")+" "))
	}
}

// reply judges a response: its status and how long it took.
func reply(op string, status int, from, to func(figures) time.Duration, has ...string) judge {
	return func(s seen, f figures) finding {
		e, ok := s.first(is(isReply, op))
		if !ok {
			return bad("%s: no reply", op)
		}
		if e.Status != status {
			return bad("%s: %d after %s", op, e.Status, seconds(e.Took))
		}
		for _, text := range has {
			if !strings.Contains(e.Text, text) {
				return bad("%s: %d without %q", op, e.Status, text)
			}
		}
		timed := within(e.Took, from(f), to(f))
		timed.text = fmt.Sprintf("%d after %s", e.Status, timed.text)
		return timed
	}
}

func figure(i int) func(figures) time.Duration {
	return func(f figures) time.Duration { return f[i] }
}

func fixed(d time.Duration) func(figures) time.Duration {
	return func(figures) time.Duration { return d }
}
