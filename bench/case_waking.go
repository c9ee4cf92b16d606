package main

import (
	"context"
	"fmt"
)

// waking compares ways to learn that a key is free.
func waking(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Push to all, queue",
		text: fmt.Sprintf(`As above, with lockkit alone, in two ways to learn that a key is free; hold %v, for %v. Push to all: its TryAcquire, by
lockers that listen on a channel of the key's on each node; whoever releases publishes there, and then all that wait try, once for
each release, and after %v to %v without a message. Queue: as it is.`, crowdHold, c.wakingMeasure, pushFallbackMin, pushFallbackMax),
	}
	table := newThrongTable(columnRate, columnToIdeal, columnHandoff50, columnHandoff99, columnRequests, columnPublished, columnOvertook, columnOne, columnJain, columnWait99, columnStood)
	for _, n := range []int{1, 3} {
		for _, lockers := range []int{greedyLockers, crowdLockers} {
			t := throng{lockers: lockers, hold: crowdHold, warm: c.wakingWarm, measure: c.wakingMeasure}
			if err := table.pass(ctx, &s, n, wakingPeers, t, nil); err != nil {
				return nil, fmt.Errorf("%d lockers: %w", lockers, err)
			}
		}
	}
	s.add("", &table.table)
	return []section{s}, nil
}
