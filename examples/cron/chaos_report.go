package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// faultsOf returns what went against the promises.
func (j *chaosJudge) faultsOf() []string {
	var found []string
	for _, tick := range j.ticks() {
		if v := j.verdict(tick); v.outcome == wrong {
			found = append(found, fmt.Sprintf("tick %s: %s", clockTime(tick), v.text))
		}
	}
	for i, r := range j.all {
		for _, before := range j.all[:i] {
			if until := j.alone(before); until.After(r.At) {
				found = append(found, fmt.Sprintf("tick %s on %s started %v before the run of tick %s on %s was over", clockTime(r.Tick),
					r.Replica, until.Sub(r.At), clockTime(before.Tick), before.Replica))
			}
		}
		if i > 0 && r.Token <= j.all[i-1].Token {
			found = append(found, fmt.Sprintf("tick %s on %s has token %d after %d", clockTime(r.Tick), r.Replica, r.Token, j.all[i-1].Token))
		}
	}
	return found
}

// check returns an error unless all went as is promised.
func (j *chaosJudge) check() error {
	if found := j.faultsOf(); len(found) > 0 {
		return fmt.Errorf("%s: %s", j.name, strings.Join(found, "\n"+j.name+": "))
	}
	return nil
}

// report counts outcomes, and the starts of each replica.
func (j *chaosJudge) report() string {
	by := map[outcome]int{}
	for _, tick := range j.ticks() {
		by[j.verdict(tick).outcome]++
	}
	on := map[string]int{}
	for _, r := range j.all {
		on[r.Replica]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-7s %3d ticks:", j.name, len(j.ticks()))
	for _, o := range []outcome{once, again, skipped, lost, lostClaim, missed, usedUp, wrong} {
		fmt.Fprintf(&b, " %d %s,", by[o], o)
	}
	fmt.Fprintf(&b, " %d starts:", len(j.all))
	for _, name := range slices.Sorted(maps.Keys(on)) {
		fmt.Fprintf(&b, " %s %d", name, on[name])
	}
	return b.String() + "\n"
}

// faultCounts counts what was done to replicas and nodes, and what ticks were refused for.
func faultCounts(rec *record) string {
	refused := rec.these(isRefused)
	var text strings.Builder
	fmt.Fprintf(&text, "%d kills, %d stops, %d nodes emptied; %d times a tick was refused but for a run\n",
		len(rec.these(isKilled)), len(rec.these(isStopped)), len(rec.these(isEmptied)), len(refused))
	for _, e := range refused[:min(len(refused), 5)] {
		fmt.Fprintf(&text, "  %s: %s\n", e.Replica, e.Text)
	}
	return text.String()
}
