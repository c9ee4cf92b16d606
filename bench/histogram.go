package main

import (
	"math"
	"math/bits"
	"time"
)

// A histogram counts durations in buckets that are at most 1.6 % wide.
type histogram struct {
	counts [buckets]uint32
	total  int
}

// Each power of two is divided into 1<<fine buckets. The last one takes all that is beyond nine minutes.
const (
	fine    = 6
	buckets = (40 - fine) << fine
)

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// quantile returns a duration that the fraction q does not exceed, 0 of nothing.
func (h *histogram) quantile(q float64) time.Duration {
	rank := max(1, int(math.Ceil(q*float64(h.total))))
	seen := 0
	for i, n := range h.counts {
		if seen += int(n); seen >= rank {
			return middle(i)
		}
	}
	return 0
}

func bucketOf(d time.Duration) int {
	ns := uint64(max(d, 0))
	shift := max(0, bits.Len64(ns)-fine-1)
	return min(shift<<fine+int(ns>>shift), buckets-1)
}

func middle(bucket int) time.Duration {
	shift := max(0, bucket>>fine-1)
	return time.Duration((bucket-shift<<fine)<<shift + 1<<shift/2)
}
