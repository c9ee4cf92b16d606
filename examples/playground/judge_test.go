package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// told returns a judge that has seen the events and has checked them. The replica of an event is the life of a process.
func told(until float64, events ...Event) *judge {
	j := &judge{}
	for _, e := range events {
		j.see(e.Replica, e)
	}
	j.check(until)
	return j
}

func grant(replica string, token uint64, at, until float64) Event {
	return Event{Kind: isGrant, Replica: replica, Key: "k", Token: token, At: at, Until: until}
}

// inSlot is an event about a slot of a semaphore.
func inSlot(slot int, e Event) Event {
	e.Key, e.Slot = api, &slot
	return e
}

func end(kind, replica string, token uint64, at float64) Event {
	return Event{Kind: kind, Replica: replica, Key: "k", Token: token, At: at}
}

func wrote(token uint64, at float64, text string) Event {
	return Event{Kind: isWrite, Key: "k", Token: token, At: at, Text: text}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		events []Event
		until  float64 // 0 = everything
		want   string  // the beginning of the violation
	}{
		"one after the other": {events: []Event{grant("a", 1, 100, 2000), end(isEnd, "a", 1, 200), grant("b", 2, 200, 2200)}},
		"overlap":             {events: []Event{grant("a", 1, 100, 2000), grant("b", 2, 200, 2200), end(isEnd, "a", 1, 300)}, want: "overlapping leases"},
		"overlap, by the renewal": {want: "overlapping leases", events: []Event{grant("a", 1, 100, 2000), {Kind: isRenew, Replica: "a", Key: "k", Token: 1, At: 1500, Until: 3000},
			grant("b", 2, 2500, 4000)}},
		"b is heard before a":                     {events: []Event{grant("a", 1, 100, 2000), grant("b", 2, 200, 2200), end(isEnd, "a", 1, 200)}},
		"b is heard, and a only up to 150":        {events: []Event{grant("a", 1, 100, 2000), grant("b", 2, 200, 2200)}, until: 150},
		"token back":                              {events: []Event{grant("a", 5, 100, 2000), end(isEnd, "a", 5, 200), grant("b", 4, 300, 2300)}, want: "token not greater"},
		"token twice":                             {events: []Event{grant("a", 5, 100, 2000), end(isEnd, "a", 5, 200), grant("b", 5, 300, 2300)}, want: "duplicate token"},
		"a paused holder until its lease is over": {events: []Event{grant("a", 1, 100, 2000), grant("b", 2, 2000, 4000)}},
		"a paused holder before":                  {events: []Event{grant("a", 1, 100, 2000), grant("b", 2, 1999, 4000)}, want: "overlapping leases"},
		"a paused holder that notices late":       {events: []Event{grant("a", 1, 100, 2000), grant("b", 2, 2100, 4000), end(isLost, "a", 1, 9000)}},
		"a killed holder": {events: []Event{grant("a", 1, 100, 2000), {Kind: isKilled, Replica: "a", At: 300},
			grant("b", 2, 300, 4000)}},
		"another life is killed": {want: "overlapping leases", events: []Event{grant("a-1", 1, 100, 2000), {Kind: isKilled, Replica: "a-2", At: 300},
			grant("b", 2, 300, 4000)}},
		"as many in slots of their own as there are permits": {events: []Event{inSlot(0, grant("a", 5, 100, 2000)), inSlot(1, grant("b", 3, 200, 2200)),
			inSlot(1, end(isEnd, "b", 3, 300)), inSlot(1, grant("c", 5, 300, 2300))}},
		"two in one slot": {events: []Event{inSlot(1, grant("a", 1, 100, 2000)), inSlot(1, grant("b", 2, 200, 2200))}, want: "overlapping leases"},
		"more than there are permits": {want: "too many holders: 3 of payments-api", events: []Event{inSlot(0, grant("a", 1, 100, 2000)), inSlot(1, grant("b", 2, 200, 2200)),
			inSlot(2, grant("c", 3, 300, 2300))}},
		"more than there are permits, by the renewal of one": {want: "too many holders", events: []Event{inSlot(0, grant("a", 1, 100, 2000)), inSlot(1, grant("b", 2, 1900, 4000)),
			inSlot(0, Event{Kind: isRenew, Replica: "a", Token: 1, At: 1500, Until: 3000}), inSlot(2, grant("c", 3, 2500, 4500))}},
		"as many as there are permits, after one has run out": {events: []Event{inSlot(0, grant("a", 1, 100, 2000)), inSlot(1, grant("b", 2, 1900, 4000)),
			inSlot(2, grant("c", 3, 2000, 4000))}},
		"as many as there are permits, after one was killed": {events: []Event{inSlot(0, grant("a", 1, 100, 2000)), inSlot(1, grant("b", 2, 200, 2200)),
			{Kind: isKilled, Replica: "a", At: 300}, inSlot(2, grant("c", 3, 300, 2300))}},
		"paused before it could say what it was granted": {events: []Event{grant("b", 2, 2100, 4000), grant("a", 1, 5000, 2000), end(isLost, "a", 1, 5000)}},
		"a stale write is refused":                       {events: []Event{wrote(1, 100, "read"), wrote(2, 200, "read"), wrote(1, 300, "refused"), wrote(2, 400, "accepted")}},
		"a stale write is accepted":                      {events: []Event{wrote(1, 100, "read"), wrote(2, 200, "read"), wrote(1, 300, "stale")}, want: "fence"},
		"a good write is refused":                        {events: []Event{wrote(1, 100, "read"), wrote(2, 200, "refused")}, want: "fence"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.until == 0 {
				c.until = 1e6
			}
			j := told(c.until, c.events...)
			v := j.verdict()
			if v.OK != (c.want == "") || !strings.HasPrefix(j.found, c.want) {
				t.Errorf("%+v, want %q", v, c.want)
			}
		})
	}
}

// However long a judge runs, it keeps a bounded number of events. It compares new events even with the ones that it has
// dropped.
func TestJudgeKeepsLittle(t *testing.T) {
	j := &judge{}
	rare := grant("b", 5, 500, 2500)
	rare.Key = "rare"
	j.see("b", rare)
	at := 1000.0
	for n := range uint64(3 * kept) {
		for key := range 2 {
			e := grant("a", n+10, at, at+2000)
			e.Key = fmt.Sprint(key)
			j.see("a", e)
			e.Kind, e.At = isEnd, at+1
			j.see("a", e)
			e.Kind, e.Text = isWrite, "accepted"
			j.see("", e)
		}
		at += 2
		if n%500 == 0 {
			j.check(at)
		}
	}

	j.check(at)
	v := j.verdict()
	if !v.OK || len(j.holds) > kept+3 || len(j.writes) > kept+3 || v.Checked != 12*kept+1 {
		t.Errorf("%+v; %d leases, %d writes kept", v, len(j.holds), len(j.writes))
	}

	rare.At, rare.Until, rare.Token = at, at+2000, 4 // smaller than long before
	j.see("b", rare)
	j.check(at + 1)
	if j.verdict().OK {
		t.Error("a token that went back passed")
	}

	j.reset()
	stale := wrote(2, at+2, "refused")
	stale.Key = "1"
	j.see("", stale)
	j.check(at + 3)
	if v := j.verdict(); !v.OK {
		t.Errorf("after the reset: %+v", v)
	}
}

// The verdict stays with the first violation until it is reset.
func TestVerdictStays(t *testing.T) {
	j := told(1e6, grant("a", 1, 100, 2000), grant("b", 2, 200, 2200))
	first := j.found
	j.fault("something else")
	j.check(1e6)
	if j.found != first || first == "" {
		t.Errorf("%q became %q", first, j.found)
	}
	j.reset()
	j.see("b", end(isEnd, "b", 2, 300))
	j.check(1e6)
	if v := j.verdict(); !v.OK {
		t.Errorf("after the reset: %+v", v)
	}
}

func TestTally(t *testing.T) {
	at := func(s int) string { return tickOf(time.Unix(int64(s), 0)) }
	completed := func(at, took float64) Event {
		return Event{At: at, Ms: took, Kind: isTask, Key: "1", Text: "completed"}
	}
	for name, c := range map[string]struct {
		events []Event
		forgot int // when a node lost its memory, in ms since 1970
		want   Counters
		wrong  string
	}{
		"ticks": {events: []Event{{Kind: isTick, Text: at(7)}, {Kind: isTick, Text: at(5)}, {Kind: isTick, Text: at(8)}}, want: Counters{Ticks: 4, Runs: 3}},
		"a tick twice": {events: []Event{{Kind: isTick, Text: at(5), Replica: "a"}, {Kind: isTick, Text: at(5), Replica: "b"}}, want: Counters{Ticks: 1, Runs: 2},
			wrong: "ran on a and on b"},
		"tasks":                   {events: []Event{{Kind: isTask, Key: "1", Text: "completed"}, {Kind: isTask, Key: "1", Text: "duplicate"}}, want: Counters{Completed: 1, Duplicates: 1}},
		"tasks, in another order": {events: []Event{{Kind: isTask, Key: "1", Text: "duplicate"}, {Kind: isTask, Key: "1", Text: "completed"}}, want: Counters{Completed: 1, Duplicates: 1}},
		"a task twice": {events: []Event{{Kind: isTask, Key: "1", Text: "completed"}, {Kind: isTask, Key: "1", Text: "completed"}},
			want: Counters{Completed: 1, Again: 1}, wrong: "completed twice"},
		"a task twice, when a node had forgotten": {events: []Event{completed(1000, 100), completed(3000, 100)}, forgot: 2000, want: Counters{Completed: 1, Forgotten: 1}},
		"a task twice, when a node had forgotten before": {events: []Event{completed(1000, 100), completed(3000, 100)}, forgot: 800,
			want: Counters{Completed: 1, Again: 1}, wrong: "completed twice"},
		"a task twice, when a node forgot before its completion was told": {events: []Event{completed(1000, 500), completed(3000, 100)}, forgot: 800, want: Counters{Completed: 1, Forgotten: 1}},
		"a task twice, of which the first run is told last":               {events: []Event{completed(3000, 100), completed(4000, 3500)}, forgot: 800, want: Counters{Completed: 1, Forgotten: 1}},
		"writes": {events: []Event{{Kind: isWrite, Text: "accepted"}, {Kind: isWrite, Text: "refused"}, {Kind: isWrite, Text: "stale"}, {Kind: isGrant}, {Kind: isLost}},
			want: Counters{StaleRefused: 1, StaleAccepted: 1, Grants: 1, Losses: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			tally := tally{forgotten: func(since time.Time) bool { return millis(since) < float64(c.forgot) }}
			var wrong strings.Builder
			for _, e := range c.events {
				wrong.WriteString(tally.see(e))
			}
			if tally.Counters != c.want || (wrong.String() == "") != (c.wrong == "") || !strings.Contains(wrong.String(), c.wrong) {
				t.Errorf("%+v, %q; want %+v, %q", tally.Counters, wrong.String(), c.want, c.wrong)
			}
		})
	}
}

func TestRecentForgets(t *testing.T) {
	var r recent[int, int]
	for i := range recentSize + 10 {
		r.put(i, i)
	}
	_, old := r.get(9)
	_, kept := r.get(10)
	if old || !kept || len(r.values) != recentSize || len(r.order) != recentSize {
		t.Errorf("9: %v, 10: %v, %d values, %d in order", old, kept, len(r.values), len(r.order))
	}
}

// The judge checks events up to the time that all running replicas have reported. Paused and dead replicas report no
// more.
func TestSettled(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	p := &playground{replicas: map[string]*process{"a": {is: up, heard: 100}, "b": {is: up, heard: 50}, "c": {is: paused, since: long, heard: 10}}}
	if got := p.settled(); got != 50 {
		t.Errorf("a and b are up: %v", got)
	}
	p.replicas["c"].since = time.Now() // its last reports may still be under way
	if got := p.settled(); got != 10 {
		t.Errorf("c was just paused: %v", got)
	}
	p.replicas["b"].is, p.replicas["c"].since = down, long
	if got := p.settled(); got != 100 {
		t.Errorf("a is up: %v", got)
	}
	p.replicas["a"].is = down
	if got := p.settled(); got < millis(long) {
		t.Errorf("none is up: %v", got)
	}
}
