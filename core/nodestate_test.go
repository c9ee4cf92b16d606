package core

import (
	"testing"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// What an attempt knows of a node: a confirmation counts for COMPLETE only where the lease was trusted when it was
// heard of, and no completion was under way.
func TestMemoryOfConfirmations(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*Lease)
		verdict wire.Verdict
		want    string
	}{
		"held":                 {func(*Lease) {}, wire.Granted, "new"},
		"healed":               {func(*Lease) {}, wire.Healed, "new"},
		"passed":               {func(*Lease) {}, wire.Passed, "new"},
		"refused":              {func(*Lease) {}, wire.Gone, "old"},
		"not trusted any more": {func(lease *Lease) { lease.until.Store(lease.engine.Clock.Now()) }, wire.Healed, "old"},
		"completing":           {func(lease *Lease) { lease.completing = true }, wire.Healed, "old"},
		"not reported yet":     {func(lease *Lease) { lease.state = leasePending }, wire.Granted, "old"},
		"over":                 {func(lease *Lease) { lease.state = leaseOver }, wire.Granted, "old"},
		"lost":                 {func(lease *Lease) { lease.state = leaseLost }, wire.Granted, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				lease := w.acquire(w.process(), "k")
				lease.mu.Lock()
				was := lease.state
				lease.nodes[0].memory = "old"
				c.prepare(lease)
				lease.mu.Unlock()
				lease.renewalNow().Hear(wire.OpRenew, node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Verdict: c.verdict, Memory: "new", Expiry: lease.nodes[0].expiry + 1}}, Node: 0, Sent: 0})
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
	s.granted(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 20, Clock: 2000, Memory: "granted"}}, Node: 0, Sent: 2})
	if s.expiry != 20 || s.clock != 2000 || s.sent != 2 || s.memory != "granted" {
		t.Errorf("after the grant: %+v", s)
	}
	s.confirm(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 10, Clock: 1000}}, Node: 0, Sent: 1})
	if s.expiry != 20 || s.clock != 2000 || s.sent != 2 {
		t.Errorf("after an older confirmation: %+v", s)
	}
	s.confirm(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 30, Clock: 3000}}, Node: 0, Sent: 3})
	s.granted(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 20, Clock: 2000, Memory: "late"}}, Node: 0, Sent: 2})
	if s.expiry != 30 || s.memory != "granted" {
		t.Errorf("after a newer confirmation, and a late grant: %+v", s)
	}
}
