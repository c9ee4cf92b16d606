package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// An entrant is a peer in a case, and what was measured of it.
type entrant struct {
	peer
	locker  locker
	keys    [][]string    // by worker
	rounds  []slice       // one that hung measured nothing
	hung    []error       // of rounds, that one of warming up included
	servers serverUse     // per node, over all rounds
	least   time.Duration // of rounds: what a server spent in the commands of a call, at most
	client  time.Duration
}

// waves is how many pairs each goroutine has in a slice, at least and on average.
const waves = 3

// Keys per worker. No two workers share one, so nobody waits.
const keysEach = 16

// enter opens peers on nodes, for up to so many goroutines.
func enter(ctx context.Context, ps []peer, on *nodes, goroutines int) (es []*entrant, err error) {
	for i, p := range ps {
		l, err := p.open(ctx, on.addrs(), ttl)
		if err != nil {
			leave(es)
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		es = append(es, &entrant{peer: p, locker: l, keys: keysFor(i, goroutines)})
	}
	return es, nil
}

func leave(es []*entrant) {
	for _, e := range es {
		e.locker.close()
	}
}

func keysFor(entrant, goroutines int) [][]string {
	keys := make([][]string, goroutines)
	for w := range keys {
		for k := range keysEach {
			keys[w] = append(keys[w], fmt.Sprintf("bench:%d:%d:%d", entrant, w, k))
		}
	}
	return keys
}

// anew forgets what was measured.
func (e *entrant) anew() {
	e.rounds, e.hung, e.servers, e.least, e.client = nil, nil, serverUse{}, 0, 0
}

// run runs a load of the entrant's calls. It notes if they hang, and then there is nothing of that round.
func (e *entrant) run(ctx context.Context, l load) (slice, error) {
	s, err := l.run(ctx)
	if mayHang(e.peer, err) {
		e.hung = append(e.hung, err)
		return slice{}, nil
	}
	return s, err
}

// pair locks and unlocks a key of the worker's.
func (e *entrant) pair(ctx context.Context, worker int) (locked time.Duration, err error) {
	start := time.Now()
	unlock, err := e.locker.lock(ctx, e.keys[worker][rand.IntN(keysEach)])
	if err != nil {
		return 0, err
	}
	locked = time.Since(start)
	return locked, unlock(ctx)
}

// interleave has the entrants lock and unlock in turn, round after round, so that what else the machine does hits all of
// them alike. Nobody is always first. The first round opens connections and is not counted.
func interleave(ctx context.Context, rounds int, es []*entrant, on *nodes, l load) error {
	for round := range rounds + 1 {
		for i := range es {
			e := es[(round+i)%len(es)]
			l.call = e.pair
			if err := e.measure(ctx, on, l, round > 0); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
		}
	}
	return nil
}

func (e *entrant) measure(ctx context.Context, on *nodes, l load, counts bool) error {
	runtime.GC() // nobody pays for what others left
	before, err := on.use(ctx, e.command)
	if err != nil {
		return err
	}
	cpu := clientCPU()
	s, err := e.run(ctx, l)
	if err != nil {
		return err
	}
	cpu = clientCPU() - cpu
	after, err := on.use(ctx, e.command)
	if err != nil || !counts {
		return err
	}
	if e.rounds = append(e.rounds, s); s.all == 0 {
		return nil // it hung, or each call failed
	}
	u := spent(before, after)
	e.servers = serverUse{e.servers.requests + u.requests, e.servers.commands + u.commands, e.servers.process + u.process}
	e.client += cpu
	// A server that waits for a core in the middle of a command goes on counting its time, but not its CPU.
	if most := min(u.commands, u.process) / time.Duration(s.all); e.least == 0 || most < e.least {
		e.least = most
	}
	return nil
}

// A result is what all rounds of an entrant come to.
type result struct {
	peer          string
	rate          float64 // calls per second: the median of the rounds
	low, high     float64
	rates         []float64 // of the rounds; NaN of one that hung
	ratio         float64   // to the baseline; NaN without one
	locked, whole histogram
	failures      int
	failure       error
	hung          []error
	goroutines    int
	servers       serverUse // per node and call, but for the requests
	requests      float64   // per node and call
	least         time.Duration
	client        time.Duration
}

// cell is the peer's in a table.
func (r result) cell() string {
	if len(r.hung) == 0 {
		return r.peer
	}
	return fmt.Sprintf("%s (%s hung)", r.peer, plural(len(r.hung), "round"))
}

func results(es []*entrant) []result {
	var all []result
	for _, e := range es {
		r := result{peer: e.name, low: math.Inf(1), hung: e.hung, least: e.least}
		calls := 0
		for i := range e.rounds {
			s := &e.rounds[i]
			rate := s.perSecond()
			r.rates = append(r.rates, rate)
			if !math.IsNaN(rate) {
				r.low, r.high = min(r.low, rate), max(r.high, rate)
			}
			r.locked.merge(&s.locked)
			r.whole.merge(&s.whole)
			r.failures += s.failures
			if r.failure == nil {
				r.failure = s.failure
			}
			r.goroutines = max(r.goroutines, s.goroutines)
			calls += s.all
		}
		r.rate = median(r.rates)
		if n := time.Duration(calls); n > 0 {
			r.servers = serverUse{commands: e.servers.commands / n, process: e.servers.process / n}
			r.requests = float64(e.servers.requests) / float64(calls)
			r.client = e.client / n
		}
		all = append(all, r)
	}
	for i := range all {
		all[i].ratio = toPeer(all[i], baseline, all)
	}
	return all
}

// ratio is that of the rates of a to those of b in the same round: the median of the rounds.
func ratio(a, b result) float64 {
	var ratios []float64
	for i, rate := range a.rates {
		if b.rates[i] > 0 {
			ratios = append(ratios, rate/b.rates[i])
		}
	}
	return median(ratios)
}

// toPeer is the ratio to the peer of that name, NaN if it is not among rs.
func toPeer(r result, name string, rs []result) float64 {
	i := slices.IndexFunc(rs, func(r result) bool { return r.peer == name })
	if i < 0 {
		return math.NaN()
	}
	return ratio(r, rs[i])
}

// median is that of the numbers; NaN if there are none.
func median(of []float64) float64 {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(of)), math.IsNaN)
	if len(sorted) == 0 {
		return math.NaN()
	}
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
