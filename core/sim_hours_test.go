package core

import (
	"context"
	"math/rand/v2"
	"time"
)

// This file adds leases of hours to the simulation, beside leases of seconds. Such a run has two parts with faults.
// Between them is a lull of up to hours without requests of clients, so the run takes little real time.

// simSteward is a key that the first process holds during the whole run.
const simSteward = "steward"

// drawHours gives the leases of the first process a TTL of hours. The second part of the run begins shortly before the
// first renewal of such a lease, or when every such lease that was not renewed has run out.
func (m *mixture) drawHours(r *rand.Rand) {
	m.ttls[0] = time.Hour + time.Duration(r.Int64N(int64(2*time.Hour))).Truncate(time.Second)
	m.retention = 24 * time.Hour
	m.lull = m.ttls[0]/3 - simTime*3/4
	if r.IntN(3) == 0 {
		m.lull = m.ttls[0] * 11 / 10
	}
}

// quiet returns an option of process i. If hours pass, only the first process sends background requests to nodes.
func (s *simulation) quiet(i int) Option {
	if s.lull > 0 && i > 0 {
		return untouched
	}
	return option(func(*policy) {})
}

// isLong reports whether a lease has a TTL of hours.
func (s *simulation) isLong(lease *Lease) bool { return lease.attempt.p.ttl >= time.Hour }

// lullAt returns the rest of the lull at a time, or 0 if the time is outside of the lull.
func (s *simulation) lullAt(at time.Time) time.Duration {
	begins := s.began.Add(simTime / 2)
	ends := begins.Add(s.lull)
	if at.Before(begins) || !at.Before(ends) {
		return 0
	}
	return ends.Sub(at)
}

func (s *simulation) lullLeft() time.Duration { return s.lullAt(time.Now()) }

// left returns the rest of the run without the lull.
func (s *simulation) left() time.Duration {
	left := time.Until(s.end)
	if time.Since(s.began) < simTime/2 {
		left -= s.lull
	}
	return min(left, simTime)
}

// steward holds a key of its own during the whole run. Faults last seconds, so none of them may cost a lease of hours.
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

// stewardRenewed returns the time since the lease of hours was last confirmed, if it is held.
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

// stewardIsFine checks that a lease of hours whose renewals failed is renewed soon after the last fault.
func (s *simulation) stewardIsFine() {
	ago, held := s.stewardRenewed()
	if held && ago > s.promises.steward.attempt.p.renewEvery*11/10+simBack {
		s.t.Errorf("%+v\na lease of %v was last renewed %v ago", s.mixture, s.longest(), ago)
	}
}
