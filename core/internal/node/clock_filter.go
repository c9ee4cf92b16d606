package node

import (
	"slices"
	"time"
)

// A clockFilter estimates by how much the wall clock of a node is ahead of this process's, from the node's replies. A reply
// that was under way for long says little, so the quickest of the last few counts, as in NTP (RFC 5905, section 10).
type clockFilter []clockSample

const (
	clockSamples = 8
	// clockSlack is by how much clocks may drift apart between samples, and their readings be off.
	clockSlack = 5 * time.Millisecond
)

type clockSample struct {
	ahead   time.Duration // the node's clock less this process's, in the middle between request and answer
	latency time.Duration // the time between request and answer
}

// add adds a sample. If it differs from the best by more than the time on the way explains, one of the clocks was set: what was
// seen before is forgotten.
func (f *clockFilter) add(s clockSample) {
	b, known := f.best()
	explained := (s.latency+b.latency)/2 + clockSlack
	if known && (s.ahead-b.ahead).Abs() > explained {
		*f = (*f)[:0]
	}
	if len(*f) == clockSamples {
		*f = slices.Delete(*f, 0, 1)
	}
	*f = append(*f, s)
}

// best returns the sample that was under way for the shortest time.
func (f *clockFilter) best() (best clockSample, known bool) {
	for i, s := range *f {
		if i == 0 || s.latency < best.latency {
			best = s
		}
	}
	return best, len(*f) > 0
}
