package core

import (
	"context"
	"math/rand/v2"
	"time"
)

// Leases of hours beside those of seconds. The run has two parts with faults, and between them a lull in which nobody asks for
// anything: hours pass, and cost little.

// simSteward is a key that the first process holds from the beginning to the end.
const simSteward = "steward"

// drawHours has the first process take its leases for hours. The second part is when they are due to be renewed for the first
// time, or after all have run out that were not renewed.
func (m *mixture) drawHours(r *rand.Rand) {
	m.ttls[0] = time.Hour + time.Duration(r.Int64N(int64(2*time.Hour))).Truncate(time.Second)
	m.retention = 24 * time.Hour
	m.lull = m.ttls[0]/3 - simTime*3/4
	if r.IntN(3) == 0 {
		m.lull = m.ttls[0] * 11 / 10
	}
}

// quiet is an option of a process. Where hours pass, only the first one touches nodes that nobody asks.
func (s *simulation) quiet(i int) Option {
	if s.lull > 0 && i > 0 {
		return untouched
	}
	return option(func(*policy) {})
}

// isLong reports whether a lease is one of hours.
func (s *simulation) isLong(lease *Lease) bool { return lease.attempt.p.ttl >= time.Hour }

// lullAt is how long the lull lasts yet at a time; 0 if it is not in the lull.
func (s *simulation) lullAt(at time.Time) time.Duration {
	begins := s.began.Add(simTime / 2)
	ends := begins.Add(s.lull)
	if at.Before(begins) || !at.Before(ends) {
		return 0
	}
	return ends.Sub(at)
}

func (s *simulation) lullLeft() time.Duration { return s.lullAt(time.Now()) }

// left is how much of the run is left beside the lull.
func (s *simulation) left() time.Duration {
	left := time.Until(s.end)
	if time.Since(s.began) < simTime/2 {
		left -= s.lull
	}
	return min(left, simTime)
}

// steward holds a key of its own through everything. Faults last seconds, so nothing of them may cost a lease of hours.
func (s *simulation) steward() {
	p := s.processes[0]
	lease, err := p.TryAcquire(context.Background(), simSteward)
	if err != nil || lease.Context().Err() != nil {
		s.count("no steward")
		return
	}
	s.promises.steward = lease
	select {
	case <-lease.Context().Done():
		s.t.Errorf("%+v\na lease of %v was lost after %v: %v", s.mixture, s.longest(), time.Since(s.began), context.Cause(lease.Context()))
	case <-time.After(time.Until(s.end) + simFound):
		s.count("kept through trouble")
	}
	lease.Release(context.Background())
}

// stewardRenewed is how long ago the lease of hours was confirmed, if it is held.
func (s *simulation) stewardRenewed() (ago time.Duration, held bool) {
	lease := s.promises.steward
	if lease == nil || lease.Context().Err() != nil {
		return 0, false
	}
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	p := lease.attempt.p
	return p.validity - p.margin - lease.trustedUntil.Since(lease.attempt.e.Clock.Now()), true
}

// stewardIsFine judges that a lease of hours whose renewals failed was renewed soon after the last fault.
func (s *simulation) stewardIsFine() {
	ago, held := s.stewardRenewed()
	if held && ago > s.promises.steward.attempt.p.renewEvery*11/10+simBack {
		s.t.Errorf("%+v\na lease of %v was last renewed %v ago", s.mixture, s.longest(), ago)
	}
}
