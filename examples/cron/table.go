package main

import (
	"fmt"
	"slices"
	"strings"
)

// table shows for each tick of each job how often it ran, and where. What is wrong has a "!".
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
			v := j.verdict(tick)
			mark := ' '
			if v.outcome == wrong {
				mark = '!'
			}
			return fmt.Sprintf("%d%c %s", len(v.runs), mark, v.text)
		})
	}
	return b.String() + "\n" + sums(judges)
}

// sums counts outcomes, and the starts of each replica.
func sums(judges []*judge) string {
	var b strings.Builder
	outcomes := []outcome{once, again, skipped, lost, open, wrong}
	names := []string{"a", "b", "c"}
	fmt.Fprintf(&b, "%-10s", "ticks")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%10s", o)
	}
	for _, name := range names {
		fmt.Fprintf(&b, "%6s", "on "+name)
	}
	for _, j := range judges {
		by, on := map[outcome]int{}, map[string]int{}
		for _, tick := range j.ticks() {
			v := j.verdict(tick)
			by[v.outcome]++
			for _, r := range v.runs {
				on[r.Replica]++
			}
		}
		fmt.Fprintf(&b, "\n%-10s", j.name)
		for _, o := range outcomes {
			fmt.Fprintf(&b, "%10d", by[o])
		}
		for _, name := range names {
			fmt.Fprintf(&b, "%6d", on[name])
		}
	}
	b.WriteString("\n")
	return b.String()
}
