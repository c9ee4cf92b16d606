package main

import (
	"context"
	"fmt"
	"time"
)

const (
	crowdLockers = 99
	crowdHold    = 5 * time.Millisecond

	goalCrowdMeasure  = 3 * time.Second
	goalCrowdIdeal    = 1.15
	goalCrowdRequests = 4
	goalCrowdOvertook = 0.05
)

// crowd has many lockers, each with clients of its own, wait for one key.
func crowd(ctx context.Context, c config) ([]section, error) {
	t := throng{lockers: crowdLockers, hold: crowdHold, warm: c.crowdWarm, measure: c.crowdMeasure}
	s := section{
		title: "Many waiting Lockers",
		text: fmt.Sprintf(`%d lockers, each with clients of its own, in %d processes, take one key, hold it for %v, give it back and begin again, for %v.
%s %s`, t.lockers, throngProcesses, t.hold, t.measure, throngText, waitingText),
	}
	table := newThrongTable(columnRate, columnToIdeal, columnRequests, columnPublished, columnHandoff50, columnHandoff99, columnOvertook, columnOne, columnWait50, columnWait99, columnStood)
	less := t.less(goalCrowdMeasure)
	for _, n := range []int{1, 3} {
		what := fmt.Sprintf("%d waiting Lockers in %d processes × %v, %s: ", t.lockers, throngProcesses, t.hold, plural(n, "node"))
		ideal := &goal{what: what + "time per acquisition to the ideal", want: "≤ " + times(goalCrowdIdeal), less: less}
		requests := &goal{what: what + "requests per acquisition and node", want: fmt.Sprintf("≤ %d", goalCrowdRequests), less: less}
		overtook := &goal{what: what + "acquisitions past an earlier one", want: fmt.Sprintf("≤ %.0f %%", 100*goalCrowdOvertook), less: less}
		s.goals = append(s.goals, ideal, requests, overtook)
		err := table.pass(ctx, &s, n, waitingPeers, t, func(p peer, passed passage) {
			ideal.add(p.name, times(to(passed.each, t.hold)), to(passed.each, t.hold) <= goalCrowdIdeal)
			requests.add(p.name, number(passed.requests), passed.requests <= goalCrowdRequests)
			overtook.add(p.name, fmt.Sprintf("%s, one %d×", passed.overtaken(), passed.most), passed.overtook <= goalCrowdOvertook)
		})
		if err != nil {
			return nil, err
		}
	}
	s.add("", &table.table)
	return []section{s}, nil
}
