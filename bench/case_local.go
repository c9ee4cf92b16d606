package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	localRoundTrip = 10 * time.Millisecond

	goalLocalRoundTrips = 1.2
	goalLocalBatches    = 1.05 // some may be of the watchdog
)

// local has two goroutines of one locker pass a key to one another.
func local(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Hand-off inside a process",
		text: fmt.Sprintf(`Two goroutines of one locker pass a key to one another, %d times, on nodes that are %v away. Measured is the time from just before
the call of the release until the other one has the key, in round trips as a PING measures them; and what each node was
asked meanwhile, per hand-off.`, c.passes, localRoundTrip),
	}
	t := table{head: []string{"nodes", "peer", "round trip", "p50", "p99", "p50 in round trips", "requests per node"}, text: 1}
	p := peer{name: lockkitOpen, open: openLockkit}
	for _, n := range []int{1, 3} {
		what := fmt.Sprintf("hand-off inside a process, %s, round trip %v: ", plural(n, "node"), localRoundTrip)
		trips := &goal{what: what + "p50 in round trips", want: fmt.Sprintf("≤ %.1f", goalLocalRoundTrips)}
		batches := &goal{what: what + "batches per node", want: "1"}
		s.goals = append(s.goals, trips, batches)
		err := onNodes(n, localRoundTrip, func(on *nodes) error {
			roundTrip, err := on.ping(ctx)
			if err != nil {
				return err
			}
			took, requests, err := passOn(ctx, c.passes, p, on)
			if err != nil {
				return err
			}
			half := took.quantile(0.5)
			in := number(to(half, roundTrip))
			t.add(strconv.Itoa(n), p.name, short(roundTrip), short(half), short(took.quantile(0.99)), in, number(requests))
			trips.add(p.name, in, to(half, roundTrip) <= goalLocalRoundTrips)
			batches.add(p.name, number(requests), requests <= goalLocalBatches)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plural(n, "node"), err)
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

// passOn passes a key on. The first pass is not counted.
func passOn(ctx context.Context, passes int, p peer, on *nodes) (took *histogram, requests float64, err error) {
	l, err := p.open(ctx, on.addrs(), ttl)
	if err != nil {
		return nil, 0, err
	}
	defer l.close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const key = "bench:local"
	type grant struct {
		at     time.Time
		unlock unlock
		err    error
	}
	lock := func() grant {
		unlock, err := l.lock(ctx, key)
		return grant{time.Now(), unlock, err}
	}
	holder := lock()
	if holder.err != nil {
		return nil, 0, holder.err
	}
	took = &histogram{}
	var before traffic
	for i := range passes + 1 {
		next := make(chan grant, 1)
		go func() { next <- lock() }()
		time.Sleep(2 * localRoundTrip) // it waits by then, also if it asks the nodes first
		if i == 1 {
			if before, err = on.traffic(ctx, p.command); err != nil {
				return nil, 0, err
			}
		}
		released := time.Now()
		err := holder.unlock(ctx)
		holder = <-next
		if err := errors.Join(err, holder.err); err != nil {
			return nil, 0, err
		}
		if i > 0 {
			took.add(holder.at.Sub(released))
		}
	}
	after, err := on.traffic(ctx, p.command)
	if err != nil {
		return nil, 0, err
	}
	return took, float64(after.since(before).requests) / float64(passes*len(on.servers)), holder.unlock(ctx)
}
