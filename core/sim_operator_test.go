package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/internal/sim"
)

// simOperators end leases and drop records in the simulation, and check their results against the state of the holders.
// A revoked lease is checked like any other lease: no other client may get the key while its holder trusts it.
type simOperators struct {
	forgot atomic.Int64 // number of times a node lost memory; its renewals may then keep a revoked lease alive

	mu    sync.Mutex
	holds map[simHold]*Lease // the reported leases
}

type simHold struct {
	key   string
	token uint64
}

// reported records a lease.
func (o *simOperators) reported(key string, lease *Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds[simHold{key, lease.FencingToken()}] = lease
}

func (o *simOperators) lease(hold simHold) *Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.holds[hold]
}

// operate inspects keys now and then, and revokes the lease or drops the record that it finds.
func (s *simulation) operate(p *simProcess) {
	r := s.Random(5)
	keys := []string{"key-0", "key-1"}
	for i := range simJobs {
		keys = append(keys, jobKey(i))
	}

	for {
		time.Sleep(exponential(r, s.ttl()))
		if !time.Now().Before(s.end) {
			return
		}

		key := keys[r.IntN(2)]
		if s.jobs > 0 && r.IntN(2) == 0 {
			key = keys[r.IntN(len(keys))]
		}
		state, err := p.Inspect(context.Background(), key)
		if err != nil {
			continue
		}

		time.Sleep(exponential(r, s.delay))
		switch {
		case state.Holder != nil && state.Holder.Token != 0:
			s.revokes(p, simHold{key, state.Holder.Token})
		case state.Record != nil && r.IntN(2) == 0:
			s.forgets(p, key, state.Record.Token)
		}
	}
}

func (s *simulation) revokes(p *simProcess, hold simHold) {
	forgot := s.operators.forgot.Load()
	r, err := p.Revoke(context.Background(), hold.key, hold.token)
	if err != nil {
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, Operators.TokenMismatch) {
			s.Violation("revoke: %v", err)
		}
		s.Count("not revoked")
		return
	}
	s.Count("revoked")
	s.Tracef("%s: token %d is revoked", hold.key, hold.token)
	if r.Remaining > 2*s.longest() && s.steps() { // the node's clock is wrong
		return
	}

	time.Sleep(r.Remaining)
	lease := s.operators.lease(hold)
	lost, _ := errors.AsType[*OpError](lease.Lost())
	switch {
	case lease == nil: // the holder got no answer, or died
	case lease.Context().Err() == nil && s.operators.forgot.Load() == forgot && !s.steps():
		s.Violation("%s is held with token %d although it was revoked %v ago", hold.key, hold.token, r.Remaining)
	case lost != nil && lost.Reason == LossRevoked:
		s.Count("told of revocation")
	}
}

// steps reports whether clocks of nodes step by more than the window. Then the rest of a lease is unknown.
func (s *simulation) steps() bool {
	return slices.ContainsFunc(s.Steps, func(f sim.Step) bool { return f.Do == "step" || f.Do == "jump" })
}

// forgets drops a record. It does not check that the record stays away, because other clients may be about to write it
// to all nodes.
func (s *simulation) forgets(p *simProcess, key string, token uint64) {
	s.records.excuse(s, key)
	err := p.ForgetRecord(context.Background(), key, token)
	switch {
	case err == nil:
		s.Count("record dropped")
	case !errors.Is(err, ErrUnavailable) && !errors.Is(err, Operators.TokenMismatch):
		s.Violation("forget: %v", err)
	}
}
