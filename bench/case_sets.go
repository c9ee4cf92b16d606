package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

const (
	lockkitSets = "lockkit, DoAll"

	setCallers  = 10 // that contend
	setKeys     = 5  // that they draw pairs from
	setHold     = time.Millisecond
	goalPairs   = 0.95 // DoAll beside one by one, where pairs of keys are contended
	goalJain    = 0.98
	goalDecimal = "≥ %.2f× one by one"
)

// goalSets has what DoAll is to reach beside one by one, by the number of keys and then of nodes.
var goalSets = map[int]map[int]float64{2: {1: 0.95, 3: 1.4}, 5: {1: 2.5, 3: 2.5}, 10: {1: 4, 3: 4}}

// A setWay takes several keys, runs fn, and gives them back.
type setWay struct {
	name string
	do   func(ctx context.Context, l *core.Locker, keys []string, fn func(context.Context) error) error
}

var setWays = []setWay{
	{"one by one", oneByOne},
	{lockkitSets, func(ctx context.Context, l *core.Locker, keys []string, fn func(context.Context) error) error {
		return l.DoAll(ctx, keys, fn)
	}},
}

// oneByOne nests Do in sorted order.
func oneByOne(ctx context.Context, l *core.Locker, keys []string, fn func(context.Context) error) error {
	keys = slices.Sorted(slices.Values(keys))
	run := fn
	for _, key := range slices.Backward(keys) {
		inner := run
		run = func(ctx context.Context) error { return l.Do(ctx, key, inner) }
	}
	return run(ctx)
}

// sets measures several keys at once beside one after the other.
func sets(ctx context.Context, c config) ([]section, error) {
	free := section{
		title: "Free keys",
		text: fmt.Sprintf("One caller takes some keys of its own and gives them back: by nested `Do`, and by `DoAll`. Both take turns, in %d rounds of %v; "+
			"rates are medians, and the ratio is the median of those of each round.", c.rounds, c.measure),
	}
	contended := section{
		title: "Contended keys",
		text: fmt.Sprintf("%d callers, each with a Locker of its own, take two of %d keys at random, hold them for %v, and begin again. One by one takes them in sorted order. "+
			"Jain: fairness of the callers' shares over all rounds, 1 if all are equal.", setCallers, setKeys, setHold),
	}
	for _, n := range []int{1, 3} {
		err := onNodes(n, 0, func(on *nodes) error {
			if err := provision(ctx, on.addrs()); err != nil {
				return err
			}
			return errors.Join(freeSets(ctx, c, n, on, &free), contendedSets(ctx, c, n, on, &contended))
		})
		if err != nil {
			return nil, err
		}
	}
	return []section{free, contended}, nil
}

// freeSets measures free keys on n nodes.
func freeSets(ctx context.Context, c config, n int, on *nodes, s *section) error {
	locker, err := openLocks(on.addrs())
	if err != nil {
		return err
	}
	t := &table{head: []string{"way", "keys", "sets/s", "to one by one"}}
	for _, size := range []int{2, 5, 10} {
		keys := make([]string, size)
		for i := range keys {
			keys[i] = fmt.Sprintf("bench:set:%d:%d", size, i)
		}
		rates, err := alternate(ctx, c, func(ctx context.Context, w setWay, until time.Time) ([]int, error) {
			done := 0
			for time.Now().Before(until) {
				if err := w.do(ctx, locker, keys, func(context.Context) error { return nil }); err != nil {
					return nil, err
				}
				done++
			}
			return []int{done}, nil
		})
		if err != nil {
			return errors.Join(err, locker.Close(ctx))
		}
		rates.rows(t, fmt.Sprint(size))
		least, to := goalSets[size][n], rates.ratio()
		g := &goal{what: fmt.Sprintf("%s: %d free keys", plural(n, "node"), size), want: fmt.Sprintf(goalDecimal, least)}
		g.add(lockkitSets, times(to), to >= least)
		s.goals = append(s.goals, g)
	}
	s.add(plural(n, "node"), t)
	return locker.Close(ctx)
}

// contendedSets measures pairs of few keys on n nodes.
func contendedSets(ctx context.Context, c config, n int, on *nodes, s *section) (err error) {
	var lockers []*core.Locker
	defer func() {
		for _, l := range lockers {
			err = errors.Join(err, l.Close(ctx))
		}
	}()
	for range setCallers {
		l, err := openLocks(on.addrs())
		if err != nil {
			return err
		}
		lockers = append(lockers, l)
	}

	rates, err := alternate(ctx, c, func(ctx context.Context, w setWay, until time.Time) ([]int, error) {
		shares, errs := make([]int, setCallers), make([]error, setCallers)
		var all sync.WaitGroup
		for i, l := range lockers {
			all.Go(func() {
				for errs[i] == nil && time.Now().Before(until) {
					pair := rand.Perm(setKeys)[:2]
					keys := []string{fmt.Sprint("bench:pair:", pair[0]), fmt.Sprint("bench:pair:", pair[1])}
					errs[i] = w.do(ctx, l, keys, func(context.Context) error {
						time.Sleep(setHold)
						return nil
					})
					shares[i]++
				}
			})
		}
		all.Wait()
		return shares, errors.Join(errs...)
	})
	if err != nil {
		return err
	}

	t := &table{head: []string{"way", "keys", "sets/s", "to one by one", "Jain"}}
	rates.rows(t, "2 of "+fmt.Sprint(setKeys))
	for i, w := range setWays {
		t.rows[i] = append(t.rows[i], fmt.Sprintf("%.3f", jain(rates.shares[w.name])))
	}
	s.add(plural(n, "node"), t)

	to, fair := rates.ratio(), jain(rates.shares[lockkitSets])
	g := &goal{what: fmt.Sprintf("%s: contended pairs", plural(n, "node")), want: fmt.Sprintf(goalDecimal, goalPairs)}
	g.add(lockkitSets, times(to), to >= goalPairs)
	f := &goal{what: fmt.Sprintf("%s: contended pairs, Jain", plural(n, "node")), want: fmt.Sprintf("≥ %.2f", goalJain)}
	f.add(lockkitSets, fmt.Sprintf("%.3f", fair), fair >= goalJain)
	s.goals = append(s.goals, g, f)
	return nil
}

// setRates are the rates of both ways, by name, round by round.
type setRates struct {
	rates  map[string][]float64
	shares map[string][]int // sets of each caller, over all rounds
}

// alternate runs both ways in turn, round after round, so that what else the machine does hits both alike. Neither is
// always first. The first round opens connections and is not counted.
func alternate(
	ctx context.Context, c config, slice func(ctx context.Context, w setWay, until time.Time) ([]int, error),
) (setRates, error) {
	r := setRates{rates: map[string][]float64{}, shares: map[string][]int{}}
	for round := range c.rounds + 1 {
		for i := range setWays {
			w := setWays[(round+i)%len(setWays)]
			lasts := c.measure
			if round == 0 {
				lasts = c.warm
			}
			began := time.Now()
			shares, err := slice(ctx, w, began.Add(lasts))
			took := time.Since(began)
			if err != nil {
				return r, fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				r.add(w, shares, took)
			}
		}
	}
	return r, nil
}

// add adds what was measured of a way in a round.
func (r *setRates) add(w setWay, shares []int, took time.Duration) {
	sum, all := 0, r.shares[w.name]
	if all == nil {
		all = make([]int, len(shares))
	}
	for i, share := range shares {
		sum += share
		all[i] += share
	}
	r.shares[w.name] = all
	r.rates[w.name] = append(r.rates[w.name], float64(sum)/took.Seconds())
}

// ratio is the median of the ratios of each round.
func (r *setRates) ratio() float64 {
	ratios := make([]float64, len(r.rates[lockkitSets]))
	for i, of := range r.rates[lockkitSets] {
		ratios[i] = of / r.rates[setWays[0].name][i]
	}
	return median(ratios)
}

// rows adds a row for each way.
func (r *setRates) rows(t *table, keys string) {
	t.add(setWays[0].name, keys, rate(median(r.rates[setWays[0].name])), times(1))
	t.add(lockkitSets, keys, rate(median(r.rates[lockkitSets])), times(r.ratio()))
}
