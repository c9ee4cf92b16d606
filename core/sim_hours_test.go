package core

import (
	"context"
	"time"
)

// This file adds leases of hours to the simulation, beside leases of seconds. Such a run has two parts with faults.
// Between them is a lull of up to hours without requests of clients, so the run takes little real time.

// simSteward is a key that the first process holds during the whole run.
const simSteward = "steward"

// addHours gives the leases of the first process a TTL of hours. The second part of the run begins shortly before the
// first renewal of such a lease, or, if leases expire, when every such lease that was not renewed has run out.
func (m *mixture) addHours(ttl time.Duration, expire bool) {
	m.ttls[0] = ttl
	m.retention = 24 * time.Hour
	m.lull = ttl/3 - simTime*3/4
	if expire {
		m.lull = ttl * 11 / 10
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

// lullAt returns the rest of the lull at a time since the beginning, or 0 if the time is outside of the lull.
func (m *mixture) lullAt(at time.Duration) time.Duration {
	begins, ends := simTime/2, simTime/2+m.lull
	if at < begins || at >= ends {
		return 0
	}
	return ends - at
}

func (s *simulation) lullLeft() time.Duration { return s.lullAt(time.Since(s.Began)) }

// elapsed returns the time since the beginning without the lull.
func (s *simulation) elapsed() time.Duration {
	elapsed := time.Since(s.Began)
	return max(min(elapsed, simTime/2), elapsed-s.lull)
}

// steward holds a key of its own during the whole run. Faults last seconds, so none of them may cost a lease of hours.
func (s *simulation) steward() {
	p := s.processes[0]
	lease, err := p.TryAcquire(context.Background(), simSteward)
	if err != nil || lease.Context().Err() != nil {
		s.Count("no steward")
		return
	}
	s.promises.steward = lease
	select {
	case <-lease.Context().Done():
		s.Violation("a lease of %v was lost after %v: %v", s.longest(), time.Since(s.Began), context.Cause(lease.Context()))
	case <-time.After(time.Until(s.end) + simFound):
		s.Count("kept through trouble")
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
		s.Violation("a lease of %v was last renewed %v ago", s.longest(), ago)
	}
}
