package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantileIsWithinABucket(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []time.Duration{100, 10_000, time.Second, time.Minute} {
		var h histogram
		var all []time.Duration
		for range 10_001 {
			d := time.Duration(random.Int64N(int64(limit)))
			h.add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			want := all[min(len(all)-1, int(q*float64(len(all))))]
			got := h.quantile(q)
			if off := (got - want).Abs(); off > want/64+limit/1000 {
				t.Errorf("of up to %v, quantile %v is %v, want %v", limit, q, got, want)
			}
		}
	}
}

func TestHistogramTakesAnyDuration(t *testing.T) {
	var h, sum histogram
	for _, d := range []time.Duration{-1, 0, 1, 63, 64, 127, 128, 1 << 62} {
		h.add(d)
	}
	sum.merge(&h)
	sum.merge(&h)
	if sum.total != 16 {
		t.Errorf("total %d, want 16", sum.total)
	}
	for i := range buckets {
		if got := bucketOf(middle(i)); got != i {
			t.Fatalf("the middle of bucket %d, %v, is in bucket %d", i, middle(i), got)
		}
	}
	if got := new(histogram).quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
}
