package node

import (
	"slices"
	"time"
)

// A clockFilter estimates from a node's replies how far the node's wall clock is ahead of this process's. A slow
// reply says little about the clock, so the fastest of the last few counts, as in NTP (RFC 5905, section 10).
type clockFilter []clockSample

const (
	clockSamples = 8
	// clockSlack allows for the drift between samples, and for inexact readings.
	clockSlack = 5 * time.Millisecond
)

type clockSample struct {
	offset  time.Duration // the node's clock minus this process's, halfway between request and answer
	latency time.Duration // the time between request and answer
}

// add adds a sample. If it differs from the best by more than the latencies explain, one of the clocks was set, and
// the earlier samples are dropped.
func (f *clockFilter) add(s clockSample) {
	best, known := f.best()
	explained := (s.latency+best.latency)/2 + clockSlack
	if known && (s.offset-best.offset).Abs() > explained {
		*f = (*f)[:0]
	}

	if len(*f) == clockSamples {
		*f = slices.Delete(*f, 0, 1)
	}
	*f = append(*f, s)
}

// best returns the sample with the lowest latency.
func (f *clockFilter) best() (best clockSample, known bool) {
	for i, s := range *f {
		if i == 0 || s.latency < best.latency {
			best = s
		}
	}
	return best, len(*f) > 0
}
