package main

import (
	"context"
	"fmt"
	"time"
)

const (
	greedyLockers = 16
	greedyHold    = time.Millisecond

	goalGreedyMeasure = 3 * time.Second
	goalGreedyJain    = 0.98
	goalGreedyWait    = 3
)

// greedy has some lockers take one key again as soon as they have given it back.
func greedy(ctx context.Context, c config) ([]section, error) {
	t := throng{lockers: greedyLockers, hold: greedyHold, warm: c.greedyWarm, measure: c.greedyMeasure}
	s := section{
		title: "Greedy clients",
		text: fmt.Sprintf(`As above, with %d lockers that hold the key for %v, for %v. Least and most: shares of the lockers. P99 to ideal: that of
the wait to a wait in a queue without cost, %v.`,
			t.lockers, t.hold, t.measure, t.ideal()),
	}
	table := newThrongTable(columnRate, columnJain, columnLeast, columnMost, columnWait50, columnWait99, columnWaitIdeal, columnHandoff50, columnHandoff99, columnRequests, columnPublished, columnStood)
	less := t.less(goalGreedyMeasure)
	for _, n := range []int{1, 3} {
		what := fmt.Sprintf("%d greedy clients × %v, %s: ", t.lockers, t.hold, plural(n, "node"))
		fair := &goal{what: what + "Jain's fairness index", want: fmt.Sprintf("≥ %.2f", goalGreedyJain), less: less}
		wait := &goal{what: what + "p99 of a wait to the ideal", want: fmt.Sprintf("≤ %d×", goalGreedyWait), less: less}
		s.goals = append(s.goals, fair, wait)
		err := table.pass(ctx, &s, n, waitingPeers, t, func(p peer, passed passage) {
			index, p99 := jain(passed.shares), passed.waited.quantile(0.99)
			fair.add(p.name, fmt.Sprintf("%.3f", index), index >= goalGreedyJain)
			wait.add(p.name, fmt.Sprintf("%s, %s", short(p99), times(to(p99, t.ideal()))), to(p99, t.ideal()) <= goalGreedyWait)
		})
		if err != nil {
			return nil, err
		}
	}
	s.add("", &table.table)
	return []section{s}, nil
}
