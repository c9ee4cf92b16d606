package main

import (
	"math"
	"slices"
	"time"
)

// newHistogram counts waits by the bounds of otellock's metric.
func newHistogram() Histogram {
	bounds := []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	return Histogram{bounds, make([]uint64, len(bounds)+1)}
}

// count counts what took so long.
func (h *Histogram) count(took time.Duration) {
	i, _ := slices.BinarySearch(h.Bounds, took.Seconds())
	h.Counts[i]++
}

// add adds what another one has counted, by the same bounds.
func (h *Histogram) add(o Histogram) {
	if len(h.Counts) == 0 {
		h.Bounds, h.Counts = o.Bounds, make([]uint64, len(o.Counts))
	}
	for i := range min(len(h.Counts), len(o.Counts)) {
		h.Counts[i] += o.Counts[i]
	}
}

// state returns it for the page.
func (h Histogram) state() WaitState {
	w := WaitState{P50: h.quantile(0.50), P99: h.quantile(0.99), Buckets: []Bucket{}}
	for i, n := range h.Counts {
		b := Bucket{N: n}
		if i < len(h.Bounds) {
			b.Le = h.Bounds[i] * 1000
		}
		w.Buckets = append(w.Buckets, b)
	}
	return w
}

// quantile is in ms, from within the bucket that has it.
func (h Histogram) quantile(q float64) float64 {
	var all, below uint64
	for _, n := range h.Counts {
		all += n
	}
	if all == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(all)))
	for i, n := range h.Counts {
		if below+n < rank {
			below += n
			continue
		}
		if i == len(h.Bounds) {
			break
		}
		from := 0.0
		if i > 0 {
			from = h.Bounds[i-1]
		}
		return 1000 * (from + (h.Bounds[i]-from)*float64(rank-below)/float64(n))
	}
	return 1000 * h.Bounds[len(h.Bounds)-1] // longer than that
}
