package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

// A LimitArgs says what the callers of a process do: each takes a permit or a lock, holds it, gives it back, and begins
// again. They share one Locker.
type LimitArgs struct {
	Addrs   []string
	Key     string
	Permits int // of the semaphore; 0 for plain locks
	Locks   int // the plain locks: caller i takes number i % Locks
	First   int // the number of the first caller
	Callers int
	Hold    time.Duration
	From    time.Duration // the period in which requests count, by the clock
	To      time.Duration // the end of the period, and of the loops
}

// A LimitReply is what came of it.
type LimitReply struct {
	LoopReply
	Requests int // to all nodes, within the period
}

// Limit runs the callers on a Locker of their own until the time is over.
func (w *Waiters) Limit(args LimitArgs, reply *LimitReply) error {
	measured := period{args.From, args.To}
	var requests atomic.Int64
	counting := core.Observer{Node: func(_ context.Context, _ core.OpKind, r core.NodeReply) {
		if r.Verdict != core.VerdictCircuitOpen && measured.has(clock()) {
			requests.Add(1)
		}
	}}

	opened, err := core.Open(urls(args.Addrs), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithObserver(counting))
	if err != nil {
		return err
	}
	defer lockkitLocker{Locker: opened}.close()

	callers, keys, err := args.callers(opened)
	if err != nil {
		return err
	}
	w.loops(callers, keys, LoopArgs{Hold: args.Hold, Until: args.To}, &reply.LoopReply)
	reply.Requests = int(requests.Load())
	return nil
}

// callers returns the locker and the key of each caller.
func (args LimitArgs) callers(shared *core.Locker) (callers []locker, keys []string, err error) {
	if args.Permits > 0 {
		limit, err := semaphore.New(shared, args.Permits)
		if err != nil {
			return nil, nil, err
		}
		permits := permitLocker{lockkitLocker{Locker: shared}, limit}
		return slices.Repeat([]locker{permits}, args.Callers), slices.Repeat([]string{args.Key}, args.Callers), nil
	}

	for i := range args.Callers {
		callers = append(callers, lockkitLocker{Locker: shared})
		keys = append(keys, fmt.Sprintf("%s:%d", args.Key, (args.First+i)%args.Locks))
	}
	return callers, keys, nil
}

// A permitLocker waits for a permit of a semaphore where a lockkitLocker waits for a lock.
type permitLocker struct {
	lockkitLocker
	limit *semaphore.Semaphore
}

func (l permitLocker) lock(ctx context.Context, key string) (unlock, error) {
	permit, err := l.limit.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return permit.Release(ctx) }, nil
}

// A limitLoad is callers of several processes in a closed loop.
type limitLoad struct {
	key     string
	permits int // as in LimitArgs
	locks   int
	callers int // of all processes
	hold    time.Duration

	warm, measure time.Duration
}

// A limited is how a limitLoad fared.
type limited struct {
	rate     float64 // acquisitions per second
	used     float64 // time for which permits were held, to that of the period
	most     int     // holders at once
	requests float64 // per acquisition and node
	shares   []int   // acquisitions by caller
	waits    []Wait
	wait99   time.Duration
	failures int
	failure  string
}

// run runs the load in the processes.
func (l limitLoad) run(ctx context.Context, others []*process, on *nodes) (limited, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.warm+l.measure+patience, errHung)
	defer cancel()
	from := clock() + l.warm
	measured := period{from, from + l.measure}

	replies := make([]LimitReply, len(others))
	err := together(others, func(i int, other *process) error {
		first := 0
		for before := range i {
			first += share(l.callers, len(others), before)
		}
		return other.call(ctx, "Limit", LimitArgs{
			Addrs:   on.addrs(),
			Key:     l.key,
			Permits: l.permits,
			Locks:   l.locks,
			First:   first,
			Callers: share(l.callers, len(others), i),
			Hold:    l.hold,
			From:    measured.from,
			To:      measured.to,
		}, &replies[i])
	})
	if err != nil {
		return limited{}, err
	}

	got := limitedOf(measured, replies, max(l.permits, l.locks), len(on.servers))
	if got.most > max(l.permits, l.locks) {
		return got, fmt.Errorf("%d at a time held one of %d", got.most, max(l.permits, l.locks))
	}
	return got, nil
}

// limitedOf returns what replies from the processes come to, for k permits or locks.
func limitedOf(measured period, replies []LimitReply, k, nodes int) limited {
	var got limited
	requests, granted, held := 0, 0, time.Duration(0)
	for _, r := range replies {
		requests += r.Requests
		got.failures += r.Failures
		got.failure = cmp.Or(got.failure, r.Failure)
		for _, waits := range r.Waits {
			got.shares = append(got.shares, len(measured.granted(waits)))
			got.waits = append(got.waits, waits...)
		}
	}
	for _, share := range got.shares {
		granted += share
	}
	for _, w := range got.waits {
		held += measured.held(w)
	}

	lasted := measured.to - measured.from
	got.rate = float64(granted) / lasted.Seconds()
	got.used = float64(held) / float64(lasted) / float64(k)
	got.requests = float64(requests) / float64(granted) / float64(nodes)
	got.most = mostHolders(got.waits)
	got.wait99 = measured.waited(got.waits).quantile(0.99)
	return got
}

// held returns for how much of the period the key was held after a wait.
func (p period) held(w Wait) time.Duration {
	if w.Granted == 0 {
		return 0
	}
	return max(0, min(w.Released, p.to)-max(w.Granted, p.from))
}

// mostHolders returns how many held something at once, at most.
func mostHolders(waits []Wait) (most int) {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, w := range waits {
		if w.Granted > 0 {
			changes = append(changes, change{w.Granted, 1}, change{w.Released, -1})
		}
	}
	// At the same instant, the one that leaves comes first.
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })

	holders := 0
	for _, c := range changes {
		holders += c.by
		most = max(most, holders)
	}
	return most
}

// limits are the results of ways that take turns, by name, round by round.
type limits map[string][]limited

// inTurn runs the ways round after round, so that what else the machine does hits all of them alike. No way is always
// the first. The first round opens connections and is not counted.
func (ways limitWays) inTurn(ctx context.Context, rounds int, others []*process, on *nodes) (limits, error) {
	all := limits{}
	for round := range rounds + 1 {
		for i := range ways {
			way := ways[(round+i)%len(ways)]
			load := way.load
			load.key = fmt.Sprintf("%s:%d", load.key, round) // no slice meets what an earlier one left behind
			if round == 0 {
				load.measure = min(load.measure, 200*time.Millisecond)
			}
			got, err := load.run(ctx, others, on)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			if got.failures > 0 {
				return nil, fmt.Errorf("%s: %w", way.name, errors.New(got.failure))
			}
			if round > 0 {
				all[way.name] = append(all[way.name], got)
			}
		}
	}
	return all, nil
}

// A limitWay is a way to have at most k at a time.
type limitWay struct {
	name string
	load limitLoad
}

type limitWays []limitWay

// median returns the median of a figure over the rounds of a way.
func (all limits) median(way string, figure func(limited) float64) float64 {
	var of []float64
	for _, round := range all[way] {
		of = append(of, figure(round))
	}
	return median(of)
}

func (all limits) rate(way string) float64 {
	return all.median(way, func(l limited) float64 { return l.rate })
}

func (all limits) used(way string) float64 {
	return all.median(way, func(l limited) float64 { return l.used })
}

func (all limits) requests(way string) float64 {
	return all.median(way, func(l limited) float64 { return l.requests })
}

func (all limits) wait99(way string) time.Duration {
	return time.Duration(all.median(way, func(l limited) float64 { return float64(l.wait99) }))
}

// ratio returns the median of the ratios of the rates of two ways in the same round.
func (all limits) ratio(way, to string) float64 {
	var of []float64
	for i, round := range all[way] {
		of = append(of, round.rate/all[to][i].rate)
	}
	return median(of)
}

// jain returns the fairness of the callers' shares over all rounds.
func (all limits) jain(way string) float64 {
	var shares []int
	for _, round := range all[way] {
		shares = append(shares, make([]int, len(round.shares)-len(shares))...)
		for i, share := range round.shares {
			shares[i] += share
		}
	}
	return jain(shares)
}
