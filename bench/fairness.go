package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A period is when something was measured.
type period struct{ from, to time.Duration }

// has reports whether t is in the period.
func (p period) has(t time.Duration) bool { return p.from <= t && t < p.to }

// granted returns those of waits that ended within the period, in the order of their grants.
func (p period) granted(waits []Wait) []Wait {
	var in []Wait
	for _, w := range waits {
		if p.has(w.Granted) {
			in = append(in, w)
		}
	}
	slices.SortFunc(in, func(a, b Wait) int { return cmp.Compare(a.Granted, b.Granted) })
	return in
}

// waited is how long the waits took that ended within the period, and so far those that were under way at its end.
func (p period) waited(waits []Wait) *histogram {
	h := &histogram{}
	for _, w := range waits {
		switch {
		case p.has(w.Granted):
			h.add(w.Granted - w.Begun)
		case w.Begun < p.to && (w.Granted == 0 || w.Granted >= p.to):
			h.add(p.to - w.Begun)
		}
	}
	return h
}

// handoffs is how long it took from each release to the grant to somebody who had waited for it.
func handoffs(granted []Wait) *histogram {
	h := &histogram{}
	for i := 1; i < len(granted); i++ {
		if released := granted[i-1].Released; granted[i].Begun < released {
			h.add(granted[i].Granted - released)
		}
	}
	return h
}

// overtakings counts, of those granted, who went past somebody in waits who had begun to wait earlier, and how often
// that befell the wait that it befell most.
func overtakings(granted, waits []Wait) (past, most int) {
	victims := make([]int, len(waits))
	for _, g := range granted {
		overtook := false
		for i, w := range waits {
			if w.Begun < g.Begun && (w.Granted == 0 || w.Granted > g.Granted) {
				overtook = true
				victims[i]++
				most = max(most, victims[i])
			}
		}
		if overtook {
			past++
		}
	}
	return past, most
}

// jain is Jain's fairness index: 1 if all have the same share, 1/n if one has everything. It is NaN if there is nothing.
func jain(shares []int) float64 {
	sum, squares := 0.0, 0.0
	for _, share := range shares {
		sum += float64(share)
		squares += float64(share) * float64(share)
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// inversions counts the pairs of numbers of which the greater comes first.
func inversions(numbers []int) int {
	if len(numbers) < 2 {
		return 0
	}
	half := len(numbers) / 2
	left, right := slices.Clone(numbers[:half]), slices.Clone(numbers[half:])
	count := inversions(left) + inversions(right)
	slices.Sort(left)
	slices.Sort(right)
	i := 0
	for _, r := range right {
		for i < half && left[i] <= r {
			i++
		}
		count += half - i
	}
	return count
}
