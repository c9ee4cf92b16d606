package core

import (
	"context"
	"math/rand/v2"
	"time"
)

// both acquires both keys that clients lock, and works under them: it writes under each of their tokens. An operator may
// revoke either of the leases.
func (s *simulation) both(p *simProcess, r *rand.Rand, holder string) {
	keys := []string{"key-1", "key-0"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // a holder that does not release them dies
	patience := time.AfterFunc(exponential(r, s.ttl()), cancel)
	for _, key := range keys {
		s.history.attempt(key, holder)
	}

	acquire := p.AcquireAll
	if r.IntN(4) == 0 {
		acquire = p.TryAcquireAll
	}
	set, err := acquire(ctx, keys)
	patience.Stop()
	switch {
	case err != nil:
		s.refused(keys[0], err)
		return
	case set.Context().Err() != nil: // it was lost, or its caller gave up, before it was returned
		set.Release(context.Background())
		return
	}

	s.Count("sets")
	for _, lease := range set.leases {
		s.operators.reported(lease.Key(), lease)
		s.history.granted(lease, holder)
	}

	until := time.After(min(exponential(r, s.hold), time.Until(s.end)+s.ttl()))
	for working := true; working; {
		for _, lease := range set.leases {
			if set.Context().Err() == nil {
				token := lease.FencingToken()
				s.history.wrote(lease.Key(), token, s.fences.write(lease.Key(), token))
			}
		}
		select {
		case <-set.Context().Done():
			working = false
		case <-until:
			working = false
		case <-time.After(exponential(r, s.ttl()/4)):
		}
	}

	for _, lease := range set.leases {
		s.history.ended(lease, holder)
	}
	if set.Lost() != nil {
		s.Count("set lost")
	}
	if r.Float64() >= s.deaths {
		set.Release(context.Background())
	}
}
