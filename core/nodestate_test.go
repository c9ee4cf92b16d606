package core

import (
	"testing"
)

// What an attempt knows of a node: a confirmation counts for COMPLETE only where the lease was trusted when it was
// heard of, and no completion was under way.
func TestMemoryOfConfirmations(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*Lease)
		verdict Verdict
		want    string
	}{
		"held":                 {func(*Lease) {}, VerdictGranted, "new"},
		"healed":               {func(*Lease) {}, VerdictHealed, "new"},
		"passed":               {func(*Lease) {}, VerdictPassed, "new"},
		"refused":              {func(*Lease) {}, VerdictGone, "old"},
		"not trusted any more": {func(lease *Lease) { lease.until.Store(lease.engine.clock.Now()) }, VerdictHealed, "old"},
		"completing":           {func(lease *Lease) { lease.completing = true }, VerdictHealed, "old"},
		"not reported yet":     {func(lease *Lease) { lease.state = leasePending }, VerdictGranted, "old"},
		"over":                 {func(lease *Lease) { lease.state = leaseOver }, VerdictGranted, "old"},
		"lost":                 {func(lease *Lease) { lease.state = leaseLost }, VerdictGranted, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				lease := w.acquire(w.process(), "k")
				lease.mu.Lock()
				was := lease.state
				lease.nodes[0].memory = "old"
				c.prepare(lease)
				lease.mu.Unlock()
				lease.renewalNow().hear(OpRenew, reply{vote{verdict: c.verdict, memory: "new", expiry: lease.nodes[0].expiry + 1}, 0, 0})
				lease.mu.Lock()
				got := lease.nodes[0].memory
				lease.state = was
				lease.mu.Unlock()
				if got != c.want {
					t.Errorf("the memory is %q, want %q", got, c.want)
				}
			})
		})
	}
}

// Replies may overtake each other.
func TestExpiryOnlyGrows(t *testing.T) {
	var s nodeState
	s.granted(reply{vote{expiry: 20, clock: 2000, memory: "granted"}, 0, 2})
	if s.expiry != 20 || s.clock != 2000 || s.sent != 2 || s.memory != "granted" {
		t.Errorf("after the grant: %+v", s)
	}
	s.confirm(reply{vote{expiry: 10, clock: 1000}, 0, 1})
	if s.expiry != 20 || s.clock != 2000 || s.sent != 2 {
		t.Errorf("after an older confirmation: %+v", s)
	}
	s.confirm(reply{vote{expiry: 30, clock: 3000}, 0, 3})
	s.granted(reply{vote{expiry: 20, clock: 2000, memory: "late"}, 0, 2})
	if s.expiry != 30 || s.memory != "granted" {
		t.Errorf("after a newer confirmation, and a late grant: %+v", s)
	}
}
