package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// recordings have the events of scenes that were played on real servers, without the events of traffic.
var recordings = map[string]*scene{"cut-off": &cutOff, "two-empty": &twoEmpty, "killed-in-a-tick": &killedInTick}

func recorded(t *testing.T, name string) seen {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s seen
	lines := json.NewDecoder(f)
	for {
		var e event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			slices.SortStableFunc(s.events, func(a, b event) int { return a.At.Compare(b.At) })
			return s
		case err != nil:
			t.Fatal(err)
		}
		s.events = append(s.events, e)
	}
}

// notKept returns the results that are not kept, as "verdict: passage or what was seen".
func notKept(results []result) (found []string) {
	for _, r := range results {
		switch {
		case r.verdict == kept:
		case r.always:
			found = append(found, string(r.verdict)+": "+r.text)
		default:
			found = append(found, string(r.verdict)+": "+r.says+": "+r.text)
		}
	}
	return found
}

func TestRecordingsAreKept(t *testing.T) {
	t.Parallel()
	for name, scene := range recordings {
		s := recorded(t, name)
		results := scene.judge(s, readDocument(t), referee{ticks: !scene.forgets})
		if found := notKept(results); found != nil || len(results) < 3 {
			t.Errorf("%s: %q of %d", name, found, len(results))
		}
	}
}

// change applies do to the events that match.
func (s seen) change(match filter, do func(*event)) seen {
	s.events = slices.Clone(s.events)
	for i := range s.events {
		if match(s.events[i]) {
			do(&s.events[i])
		}
	}
	slices.SortStableFunc(s.events, func(a, b event) int { return a.At.Compare(b.At) })
	return s
}

func (s seen) without(match filter) seen {
	return seen{slices.DeleteFunc(slices.Clone(s.events), match)}
}

func (s seen) with(e event) seen {
	s.events = append(slices.Clone(s.events), e)
	return s.change(func(event) bool { return false }, nil)
}

// Each broken promise is found, whether the service, the product or the document breaks it.
func TestBrokenPromisesAreFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		of     string
		change func(s seen) seen
		page   func(text string) string
		want   string
	}{
		"a service that ignores the context of its lease": {of: "cut-off", change: func(s seen) seen {
			lease, _ := s.first(is(isGranted, "holder"))
			next, _ := s.first(is(isGranted, "waiter"))
			lease.Kind, lease.At = isLive, next.At.Add(time.Second)
			return s.without(is(isEnded, "holder")).with(lease)
		}, want: "BROKEN: two holders of account-"},
		"a context that does not end": {of: "cut-off", change: func(s seen) seen { return s.without(is(isEnded, "holder")) }, want: "BROKEN: Its context ends after 4 to 8 s, with `ErrLost`: the context did not end"},
		"another time in the document": {of: "cut-off", page: func(text string) string {
			return strings.ReplaceAll(text, "The next waiter has the key after 6 to 10 s", "The next waiter has the key after 1 to 3 s")
		}, want: "BROKEN: The next waiter has the key after 1 to 3 s"},
		"nobody gets the key": {of: "cut-off", change: func(s seen) seen { return s.without(is(isGranted, "waiter")) }, want: "BROKEN: The next waiter has the key after 6 to 10 s: not granted"},
		"a whole answer":      {of: "cut-off", change: func(s seen) seen { return s.change(is(isReply, "stream"), func(e *event) { e.Err = "" }) }, want: "a whole response"},
		"no restart guard": {of: "two-empty", change: func(s seen) seen {
			return s.change(is(isGranted, "insists"), func(e *event) { e.At = s.struck("").Add(time.Second) })
		}, want: "BROKEN: No new lock is granted for 10 s: granted after 1.0 s"},
		"a completion that nodes forgot": {of: "two-empty", change: func(s seen) seen { return s.change(is(isComplete, "completes"), func(e *event) { e.Err = "" }) }, want: "BROKEN: Until then, `Complete` returns `ErrLost`"},
		"a lease that is lost": {of: "two-empty", change: func(s seen) seen {
			return s.with(event{At: s.struck("").Add(5 * time.Second), Kind: isEnded, Op: "holder", Err: "lost", Reason: "taken"})
		}, want: "BROKEN: Keeps its lease"},
		"a token that goes back": {of: "cut-off", change: func(s seen) seen {
			return s.change(func(e event) bool { return e.Op == "waiter" && e.Token > 0 }, func(e *event) { e.Token = 1 })
		}, want: "token 1 of account-"},
		"a tick that starts twice": {of: "killed-in-a-tick", change: func(s seen) seen {
			run, _ := s.struckRun("once")
			run.At = run.At.Add(10 * time.Second)
			run.Process = "c"
			return s.with(run)
		}, want: "BROKEN: That tick does not start again"},
		"a tick that is not started again": {of: "killed-in-a-tick", change: func(s seen) seen {
			return s.without(func(e event) bool { return e.Attempt == 2 })
		}, want: "BROKEN: With [`AtLeastOnce`]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, scene := recorded(t, test.of), recordings[test.of]
			if test.change != nil {
				s = test.change(s)
			}
			text, err := os.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			page := string(text)
			if test.page != nil {
				page = test.page(page)
			}

			found := notKept(scene.judge(s, parsePage(page), referee{ticks: !scene.forgets}))
			if !slices.ContainsFunc(found, func(text string) bool {
				return strings.Contains(text, test.want) && strings.HasPrefix(text, string(broken))
			}) {
				t.Errorf("%q, want %q", found, test.want)
			}
		})
	}
}

// A slow machine is no excuse for a fault that it does not explain. If it may explain the fault, the promise is not
// judged, and does not count as kept.
func TestSlowMachine(t *testing.T) {
	t.Parallel()
	late := func(d time.Duration) func(seen) seen {
		return func(s seen) seen {
			return s.with(event{At: s.struck("").Add(d + 5*time.Second), Process: "b", Kind: isLate, Took: d})
		}
	}
	waiter := func(s seen) seen {
		return s.change(is(isGranted, "waiter"), func(e *event) { e.At = s.struck("").Add(12 * time.Second) })
	}
	const promise = "The next waiter has the key after 6 to 10 s"
	for name, test := range map[string]struct {
		change []func(seen) seen
		want   verdict
	}{
		"in time on a slow machine":    {[]func(seen) seen{late(3 * time.Second)}, kept},
		"2 s too late, timers in time": {[]func(seen) seen{waiter, late(100 * time.Millisecond)}, broken},
		"2 s too late, timers also":    {[]func(seen) seen{waiter, late(2 * time.Second)}, notJudged},
		"the process was stopped on purpose": {[]func(seen) seen{waiter, late(2 * time.Second), func(s seen) seen {
			return s.with(event{At: s.struck("").Add(4900 * time.Millisecond), Kind: isStruck, Op: "stop", Text: stops, Key: "b"})
		}}, broken},
	} {
		s := recorded(t, "cut-off")
		for _, change := range test.change {
			s = change(s)
		}
		results := cutOff.judge(s, readDocument(t), referee{})
		i := slices.IndexFunc(results, func(r result) bool { return r.says == promise })
		if i < 0 || results[i].verdict != test.want {
			t.Errorf("%s: %v, want %v", name, results, test.want)
		}
	}

	// Two holders at once are a violation, however slow the machine is.
	if found := unsafe("two holders").on(time.Hour); found != broken {
		t.Errorf("two holders on a slow machine: %s", found)
	}
}

// Overlaps are found in the observations of processes. A lease is known to be live between two of them.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int, process string, k kind, token uint64) event {
		return event{At: begin.Add(time.Duration(seconds) * time.Second), Process: process, Kind: k, Key: "key", Token: token}
	}
	for name, test := range map[string]struct {
		events []event
		alone  bool
		want   int
	}{
		"one after the other":        {events: []event{at(0, "a", isGranted, 1), at(3, "a", isLive, 1), at(4, "b", isGranted, 2), at(5, "b", isLive, 2)}},
		"a holder that says nothing": {events: []event{at(0, "a", isGranted, 1), at(4, "b", isGranted, 2), at(9, "b", isLive, 2)}},
		// The violations are the overlap, and the refusal of the store.
		"beside another":                 {events: []event{at(0, "a", isGranted, 1), at(2, "b", isGranted, 2), at(3, "b", isLive, 2), at(4, "a", isLive, 1)}, want: 2},
		"beside another, without guard":  {events: []event{at(0, "a", isGranted, 1), at(2, "b", isGranted, 2), at(3, "b", isLive, 2), at(4, "a", isLive, 1)}, alone: true},
		"a token that went back":         {events: []event{at(0, "a", isGranted, 2), at(1, "a", isLive, 2), at(2, "b", isGranted, 1), at(3, "b", isLive, 1)}, want: 2},
		"the same process again, faster": {events: []event{at(0, "a", isGranted, 1), at(1, "a", isLive, 1), at(1, "a", isGranted, 2), at(2, "a", isLive, 2)}},
	} {
		found := referee{alone: map[string]bool{"key": test.alone}}.violations(test.events)
		if len(found) != test.want {
			t.Errorf("%s: %q", name, found)
		}
	}
}

// A promise that is not judged is counted, but never as kept. A table without any judged promise is an error.
func TestTableCounts(t *testing.T) {
	t.Parallel()
	plans, err := match(readDocument(t), rows(scenes))
	if err != nil {
		t.Fatal(err)
	}
	results := func(v verdict) []result {
		all := cutOff.judge(recorded(t, "cut-off"), readDocument(t), referee{})
		for i := range all {
			all[i].verdict = v
		}
		return all
	}

	table := newTable(plans)
	if table.verdict() == nil {
		t.Error("an empty table is no error")
	}

	table.add(results(notJudged))
	if _, promises, total := table.sums(); promises != 0 || total.kept != 0 || total.notJudged == 0 || table.verdict() == nil {
		t.Errorf("%d promises judged, %+v, %v", promises, total, table.verdict())
	}
	table.add(results(kept))
	if _, promises, _ := table.sums(); promises != 6 || table.verdict() != nil {
		t.Errorf("%d promises judged, %v", promises, table.verdict())
	}
	table.add(results(broken))
	if table.verdict() == nil {
		t.Error("broken promises are no error")
	}

	var out strings.Builder
	table.print(&out)
	if !strings.Contains(out.String(), "BROKEN 1×, kept 1×, not judged 1× (too slow a machine)") {
		t.Error(out.String())
	}
}

// A scene whose promises could not all be judged is played again, up to a limit.
func TestTriesAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		verdicts []verdict
		want     int
	}{
		"judged":          {[]verdict{kept}, 1},
		"broken":          {[]verdict{broken}, 1},
		"the second time": {[]verdict{notJudged, kept}, 2},
		"never":           {[]verdict{notJudged, notJudged, notJudged, notJudged}, tries},
	} {
		r := &runner{table: newTable(nil), out: io.Discard}
		played := 0
		err := r.judged(func() ([]result, error) {
			played++
			return []result{{what: "row", says: "promise", verdict: test.verdicts[played-1]}}, nil
		})
		if err != nil || played != test.want {
			t.Errorf("%s: played %d times, want %d: %v", name, played, test.want, err)
		}
	}
}
