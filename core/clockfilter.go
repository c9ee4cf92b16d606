package core

import "time"

// A clockFilter estimates by how much the wall clock of a node is ahead, from what its replies show. A reply
// that was long under way says little, so the quickest of the last few counts, as in NTP (RFC 5905, section 10).
type clockFilter struct {
	samples [8]clockSample
	next    int
}

type clockSample struct {
	taken   bool
	ahead   time.Duration // the node's clock less this process's in the middle between request and answer,
	latency time.Duration // and how long that was
}

func (f *clockFilter) add(s clockSample) {
	f.samples[f.next] = s
	f.next = (f.next + 1) % len(f.samples)
}

func (f *clockFilter) best() (best clockSample) {
	for _, s := range f.samples {
		if s.taken && (!best.taken || s.latency < best.latency) {
			best = s
		}
	}
	return best
}

// heardClock books by how much the node's wall clock was ahead when the answer came.
func (n *node) heardClock(ahead, latency time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock.add(clockSample{true, ahead + latency/2, latency})
}
