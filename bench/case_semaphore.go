package main

import (
	"context"
	"fmt"
	"time"
)

// A limitConfig is how much of semaphores is measured.
type limitConfig struct {
	rounds      int
	warm        time.Duration // of each slice
	uncontended time.Duration // of a slice without holds
	saturated   time.Duration // of a slice with short holds; twice as much with long ones
}

const (
	limitProcesses = 4
	limitCrowd     = 4 // callers for each permit
	limitCallers   = 8 // of a semaphore that has permits for all, at most
	limitShort     = 10 * time.Millisecond
	limitLong      = 100 * time.Millisecond

	lockkitSemaphore = "lockkit/semaphore"
	ownLocks         = "plain locks, one per caller"
	crowdedLocks     = "plain locks, 4 callers each"

	goalFree         = 0.8
	goalFreeRequests = 2.0
	goalUsed         = 0.88
	goalUsedOfThree  = 0.7
	goalLimitJain    = 0.98
)

// goalWaitRequests is how many requests an acquisition may send to a node, by the time of a hold.
var goalWaitRequests = map[time.Duration]float64{limitShort: 6, limitLong: 8}

// A crowdedLimit is a semaphore with more callers than permits.
type crowdedLimit struct {
	k    int
	hold time.Duration
}

// limitCrowds are the semaphores with more callers than permits, by the number of nodes.
var limitCrowds = map[int][]crowdedLimit{
	1: {{3, limitShort}, {3, limitLong}, {10, limitShort}, {10, limitLong}},
	3: {{10, limitShort}},
}

// freeLimits measures semaphores with a permit for each caller, beside plain locks.
func freeLimits(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Uncontended",
		text: fmt.Sprintf(`k callers, %d at most, share a Locker in another process. They acquire and release permits of one semaphore of k. Beside them, as many
callers acquire and release a plain lock each, on keys of their own. A pair is an acquisition and its release. Both take turns, in %s of
%v. Figures are medians of the rounds, and the ratio is the median of the ratios within a round. Requests: per pair.`,
			limitCallers, plural(c.limits.rounds, "round"), c.limits.uncontended),
	}
	err := onLimitNodes(ctx, 1, 1, func(others []*process, on *nodes) error {
		return uncontendedLimits(ctx, c.limits, others, on, &s)
	})
	return []section{s}, err
}

// crowdedLimits measures semaphores with more callers than permits, beside plain locks.
func crowdedLimits(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Saturated",
		text: fmt.Sprintf(`%d callers for each of k permits, in %d processes, acquire a permit, hold it, release it and begin again. The callers of a process share a
Locker. Beside them: k callers with a plain lock each, who never wait for one another; and as many callers as the semaphore has, %d for
each of k plain locks, who cannot choose. The ways take turns, in %s of %v, and of %v for holds of %v. Used: the part of the
time for which permits were held; the ideal is 1. Jain: fairness of the callers' shares over all rounds, 1 if all are equal. Requests:
per acquisition and node, release included. Other figures are medians of the rounds. The run fails if more than k hold at a time.`,
			limitCrowd, limitProcesses, limitCrowd, plural(c.limits.rounds, "round"), c.limits.saturated, 2*c.limits.saturated, limitLong),
	}
	for _, n := range []int{1, 3} {
		err := onLimitNodes(ctx, n, limitProcesses, func(others []*process, on *nodes) error {
			return saturatedLimits(ctx, c.limits, others, on, &s, limitCrowds[n])
		})
		if err != nil {
			return nil, err
		}
	}
	return []section{s}, nil
}

// onLimitNodes measures on n nodes with other processes. Their callers open Lockers for each slice.
func onLimitNodes(ctx context.Context, n, processes int, measure func([]*process, *nodes) error) error {
	return onNodes(n, 0, func(on *nodes) error {
		if err := provision(ctx, on.addrs()); err != nil {
			return err
		}
		return inProcesses(ctx, processes, 0, peer{name: lockkitOpen}, on, func(others []*process) error {
			return measure(others, on)
		})
	})
}

// uncontendedLimits measures semaphores with a permit for each caller.
func uncontendedLimits(ctx context.Context, c limitConfig, others []*process, on *nodes, s *section) error {
	t := &table{head: []string{"way", "k", "callers", "pairs/s", "to plain locks", "requests"}}
	for _, k := range []int{1, 10, 100} {
		load := limitLoad{callers: min(k, limitCallers), warm: c.warm, measure: c.uncontended}
		ways := limitWays{
			{ownLocks, load.plain(fmt.Sprint("bench:own:", k), load.callers)},
			{lockkitSemaphore, load.limit(fmt.Sprint("bench:free:", k), k)},
		}
		got, err := ways.inTurn(ctx, c.rounds, others, on)
		if err != nil {
			return fmt.Errorf("k = %d: %w", k, err)
		}
		for _, way := range ways {
			t.add(way.name, fmt.Sprint(k), fmt.Sprint(load.callers), rate(got.rate(way.name)),
				times(got.ratio(way.name, ownLocks)), number(got.requests(way.name)))
		}

		to, requests := got.ratio(lockkitSemaphore, ownLocks), got.requests(lockkitSemaphore)
		what := fmt.Sprintf("1 node, uncontended, k = %d: ", k)
		s.goal(c, what+"pairs/s to plain locks", fmt.Sprintf("≥ %.1f×", goalFree), times(to), to >= goalFree)
		s.goal(c, what+"requests per pair", fmt.Sprintf("≤ %.1f", goalFreeRequests), number(requests), requests < goalFreeRequests+0.05)
	}
	s.add("", t)
	return nil
}

// saturatedLimits measures semaphores with more callers than permits.
func saturatedLimits(ctx context.Context, c limitConfig, others []*process, on *nodes, s *section, of []crowdedLimit) error {
	n := len(on.servers)
	t := &table{head: []string{"way", "k", "hold", "callers", "acquisitions/s", "used", "Jain", "requests", "wait p99"}}
	for _, one := range of {
		load := limitLoad{callers: limitCrowd * one.k, hold: one.hold, warm: c.warm + 2*one.hold, measure: c.saturated}
		if one.hold == limitLong {
			load.measure = 2 * c.saturated
		}
		key := fmt.Sprintf("bench:crowd:%d:%v", one.k, one.hold)
		alone := load
		alone.callers = one.k
		ways := limitWays{
			{ownLocks, alone.plain(key+":own", one.k)},
			{crowdedLocks, load.plain(key+":plain", one.k)},
			{lockkitSemaphore, load.limit(key, one.k)},
		}
		got, err := ways.inTurn(ctx, c.rounds, others, on)
		if err != nil {
			return fmt.Errorf("%s, k = %d, %v: %w", plural(n, "node"), one.k, one.hold, err)
		}
		for _, way := range ways {
			t.add(way.name, fmt.Sprint(one.k), one.hold.String(), fmt.Sprint(way.load.callers), rate(got.rate(way.name)),
				number(got.used(way.name)), fmt.Sprintf("%.3f", got.jain(way.name)), number(got.requests(way.name)), short(got.wait99(way.name)))
		}
		one.goals(c, s, n, got)
	}
	s.add(plural(n, "node"), t)
	return nil
}

// goals adds what the semaphore is to reach.
func (one crowdedLimit) goals(c limitConfig, s *section, n int, got limits) {
	what := fmt.Sprintf("%s, %d callers, k = %d, %v: ", plural(n, "node"), limitCrowd*one.k, one.k, one.hold)
	used, fair, requests := got.used(lockkitSemaphore), got.jain(lockkitSemaphore), got.requests(lockkitSemaphore)
	if n > 1 {
		s.goal(c, what+"used", fmt.Sprintf("≥ %.2f", goalUsedOfThree), number(used), used >= goalUsedOfThree)
		return
	}
	most := goalWaitRequests[one.hold]
	s.goal(c, what+"used", fmt.Sprintf("≥ %.2f", goalUsed), number(used), used >= goalUsed)
	s.goal(c, what+"Jain", fmt.Sprintf("≥ %.2f", goalLimitJain), fmt.Sprintf("%.3f", fair), fair >= goalLimitJain)
	s.goal(c, what+"requests", fmt.Sprintf("≤ %.0f", most), number(requests), requests <= most)
}

// goal adds a goal of the semaphore, and what it reached.
func (s *section) goal(c limitConfig, what, want, reached string, met bool) {
	g := &goal{what: what, want: want, less: c.less(full.limits)}
	g.add(lockkitSemaphore, reached, met)
	s.goals = append(s.goals, g)
}

// less says what c is if that is less than a goal's, and is empty otherwise.
func (c limitConfig) less(than limitConfig) string {
	if c == than {
		return ""
	}
	return plural(c.rounds, "short round")
}

// plain is the load on so many plain locks.
func (l limitLoad) plain(key string, locks int) limitLoad {
	l.key, l.locks = key, locks
	return l
}

// limit is the load on a semaphore of k permits.
func (l limitLoad) limit(key string, k int) limitLoad {
	l.key, l.permits = key, k
	return l
}
