package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// An outcome is what became of a tick.
type outcome string

const (
	once       outcome = "run once"
	again      outcome = "run again"  // because a run before died with its replica, or was stopped with it
	unfinished outcome = "unfinished" // all its starts ended so
	superseded outcome = "superseded" // not started: a later one was due when the job was free
	open       outcome = "open"       // the demo ended too soon to tell
)

// outcome says what became of a tick, and where.
func (j *judge) outcome(tick time.Time) (outcome, string) {
	var who []string
	completed := false
	of := j.of(tick)
	for _, r := range of {
		switch {
		case r.killed:
			who = append(who, r.Replica+" (killed)")
		case r.failed != "":
			who = append(who, r.Replica+" (stopped)")
		default:
			who = append(who, r.Replica)
			completed = completed || r.completed()
		}
	}
	text := strings.Join(who, ", ")
	later := func(r run) bool { return r.Tick.After(tick) }
	switch {
	case completed && len(of) > 1:
		return again, text
	case completed:
		return once, text
	case len(of) == j.attempts:
		return unfinished, text
	case len(of) == 0 && slices.ContainsFunc(j.all, later):
		return superseded, "superseded"
	}
	return open, text
}

// table shows for each tick of each job how often it ran, and where. One that ran too often has a "!".
func table(judges []*judge, notes []event) string {
	var b strings.Builder
	row := func(first string, cell func(j *judge) string) {
		cells := []string{fmt.Sprintf("%-9s", first)}
		for _, j := range judges {
			cells = append(cells, fmt.Sprintf("%-26s", cell(j)))
		}
		fmt.Fprintln(&b, strings.TrimRight(strings.Join(cells, " "), " "))
	}
	row("tick", func(j *judge) string { return "runs of " + j.name })
	for _, tick := range judges[0].ticks() {
		for len(notes) > 0 && notes[0].At.Before(tick) {
			fmt.Fprintf(&b, "          -- %s %s --\n", notes[0].Replica, notes[0].Kind)
			notes = notes[1:]
		}
		row(clockTime(tick), func(j *judge) string {
			if !slices.ContainsFunc(j.ticks(), tick.Equal) {
				return ""
			}
			n, mark := len(j.of(tick)), ' '
			if n > j.attempts {
				mark = '!'
			}
			_, text := j.outcome(tick)
			return fmt.Sprintf("%d%c %s", n, mark, text)
		})
	}
	return b.String()
}

// sums counts outcomes, and the starts on each replica. Its last column is the longest time without a start that a rule is
// about, and what it may be.
func sums(judges []*judge) string {
	var b strings.Builder
	outcomes := []outcome{once, again, unfinished, superseded, open}
	on := map[string]int{}
	for _, j := range judges {
		for _, r := range j.all {
			on[r.Replica]++
		}
	}
	names := slices.Sorted(maps.Keys(on))
	fmt.Fprintf(&b, "%-10s", "ticks")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%12s", o)
	}
	for _, name := range names {
		fmt.Fprintf(&b, "%6s", "on "+name)
	}
	b.WriteString("   longest wait")
	for _, j := range judges {
		by, on := map[outcome]int{}, map[string]int{}
		for _, tick := range j.ticks() {
			o, _ := j.outcome(tick)
			by[o]++
		}
		for _, r := range j.all {
			on[r.Replica]++
		}
		fmt.Fprintf(&b, "\n%-10s", j.name)
		for _, o := range outcomes {
			fmt.Fprintf(&b, "%12d", by[o])
		}
		for _, name := range names {
			fmt.Fprintf(&b, "%6d", on[name])
		}
		_, longest := j.gaps()
		fmt.Fprintf(&b, "   %.1f of %.0f s", longest.Seconds(), j.bound.Seconds())
	}
	return b.String() + "\n"
}
