package node

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A voting is what an operator knows of whether a node votes. Each change is logged once, with the reason; a lost
// connection now and then is none.
type voting struct {
	failed int          // requests in a row
	now    wire.Verdict // why the node does not vote, as logged; VerdictGranted = it votes
}

// see books a verdict, and reports whether it is news. proof: it comes from a script that only a node that votes grants.
func (s *voting) see(v wire.Verdict, proof bool) (news bool) {
	switch v {
	case wire.Failed:
		s.failed++
		if s.failed < MaxFailures {
			return false
		}
	case wire.Quarantined, wire.ClockSkewed, wire.Replica, wire.Unguarded:
		s.failed = 0
	default:
		s.failed = 0
		if !proof {
			return false
		}
		v = wire.Granted
	}
	news = s.now != v
	s.now = v
	return news
}

// A clockFilter estimates by how much the wall clock of a node is ahead, from what its replies show. A reply
// that was long under way says little, so the quickest of the last few counts, as in NTP (RFC 5905, section 10).
type clockFilter []clockSample

const (
	clockSamples = 8
	// clockSlack is by how much clocks may drift apart between samples, and their readings be off.
	clockSlack = 5 * time.Millisecond
)

type clockSample struct {
	ahead   time.Duration // the node's clock less this process's in the middle between request and answer,
	latency time.Duration // and how long that was
}

// add forgets what was seen before one of the clocks was set: it differs from now by more than the ways of the replies explain.
func (f *clockFilter) add(s clockSample) {
	if b, known := f.best(); known && (s.ahead-b.ahead).Abs() > (s.latency+b.latency)/2+clockSlack {
		*f = (*f)[:0]
	}
	if len(*f) == clockSamples {
		*f = slices.Delete(*f, 0, 1)
	}
	*f = append(*f, s)
}

func (f *clockFilter) best() (best clockSample, known bool) {
	for i, s := range *f {
		if i == 0 || s.latency < best.latency {
			best = s
		}
	}
	return best, len(*f) > 0
}
