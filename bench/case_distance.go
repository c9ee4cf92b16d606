package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A lock is to take so many round trips at most.
const goalRoundTrips = 1.1

// distance is uncontended with servers that are some milliseconds away.
func distance(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Distance",
		text: `As above, through a proxy in front of each server that passes on everything in either direction after half of the
round trip. Measured is what a PING takes through it, at the median, when nothing else runs: the proxy's own share and the
machine's are in it. A lock takes at least one round trip, and an unlock another. With many goroutines the proxies work
for each request as hard as a server does, on the same cores: there, rates are those of a machine that is busy with them.`,
	}
	t := table{head: []string{"round trip", "measured", "nodes", "goroutines", "peer", "pairs/s", "min–max", "to redsync", "lock p50", "lock p99", "lock p50 in round trips"}, text: 4}
	for _, roundTrip := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
		for _, n := range []int{1, 5} {
			err := onNodes(n, roundTrip, func(on *nodes) error {
				measured, err := on.ping(ctx)
				if err != nil {
					return err
				}
				for _, goroutines := range c.distantGoroutines {
					rs, err := pairs(ctx, on, c.distantRounds, load{goroutines: goroutines, waves: waves, warm: c.distantWarm, measure: c.distantMeasure})
					if err != nil {
						return err
					}
					lockGoal := &goal{what: fmt.Sprintf("round trip %v, %s, 1 goroutine: p50 of a lock in round trips", roundTrip, plural(n, "node")), want: fmt.Sprintf("≤ %.1f", goalRoundTrips)}
					if roundTrip == 10*time.Millisecond && n == 5 && goroutines == 1 {
						s.goals = append(s.goals, lockGoal)
					}
					for _, r := range rs {
						lock := r.locked.quantile(0.5)
						t.add(roundTrip.String(), short(measured), strconv.Itoa(n), strconv.Itoa(goroutines), r.cell(),
							rate(r.rate), spread(r.low, r.high), times(r.ratio), short(lock), short(r.locked.quantile(0.99)),
							fmt.Sprintf("%.2f", float64(lock)/float64(measured)))
						lockGoal.add(r.peer, fmt.Sprintf("%.2f", float64(lock)/float64(measured)), float64(lock) <= goalRoundTrips*float64(measured))
						s.note(r, "%v, %s, %d goroutines", roundTrip, plural(n, "node"), goroutines)
					}
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("round trip %v, %s: %w", roundTrip, plural(n, "node"), err)
			}
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// ping returns what a round trip to the first node takes at the median.
func (ns *nodes) ping(ctx context.Context) (time.Duration, error) {
	client := redis.NewClient(&redis.Options{Addr: ns.addrs()[0]})
	defer client.Close()
	var took []time.Duration
	for range 51 {
		start := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
