package core

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A confirmation of a node counts for a completion only if the lease was trusted when the reply came, and no completion
// had been sent.
func TestMemoryOfConfirmations(t *testing.T) {
	type row struct {
		prepare func(*Lease)
		verdict wire.Verdict
		want    string
	}
	bubbles(t, 1, map[string]row{
		"held":                 {func(*Lease) {}, wire.Granted, "new"},
		"healed":               {func(*Lease) {}, wire.Healed, "new"},
		"passed":               {func(*Lease) {}, wire.Passed, "new"},
		"refused":              {func(*Lease) {}, wire.Gone, "old"},
		"not trusted any more": {func(lease *Lease) { lease.liveUntil.Store(lease.attempt.e.Clock.Now()) }, wire.Healed, "old"},
		"completing":           {func(lease *Lease) { lease.attempt.completionSent = true }, wire.Healed, "old"},
		"not reported yet":     {func(lease *Lease) { lease.state = leasePending }, wire.Granted, "old"},
		"over":                 {func(lease *Lease) { lease.state = leaseOver }, wire.Granted, "old"},
		"lost":                 {func(lease *Lease) { lease.state = leaseLost }, wire.Granted, "old"},
	}, func(t *testing.T, w *world, c row) {
		lease := w.acquire(w.process(), "k")
		lease.attempt.mu.Lock()
		was := lease.state
		lease.attempt.nodes[0].memory = "old"
		c.prepare(lease)
		lease.attempt.mu.Unlock()

		lease.attempt.OnReply(wire.OpRenew, node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Verdict: c.verdict, Memory: "new", Expiry: lease.attempt.nodes[0].expiry + 1}}, Node: 0, Sent: 0})
		lease.attempt.mu.Lock()
		got := lease.attempt.nodes[0].memory
		lease.state = was
		lease.attempt.mu.Unlock()

		if got != c.want {
			t.Errorf("the memory is %q, want %q", got, c.want)
		}
	})
}

// Replies may overtake each other, so an older one does not shorten the known expiry.
func TestExpiryOnlyGrows(t *testing.T) {
	var s nodeState
	s.recordGrant(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 20, Clock: 2000, Memory: "granted"}}, Node: 0, Sent: 2})
	if s.expiry != 20 || s.nodeClock != 2000 || s.confirmedAt != 2 || s.memory != "granted" {
		t.Errorf("after the grant: %+v", s)
	}
	s.recordConfirmation(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 10, Clock: 1000}}, Node: 0, Sent: 1})
	if s.expiry != 20 || s.nodeClock != 2000 || s.confirmedAt != 2 {
		t.Errorf("after an older confirmation: %+v", s)
	}
	s.recordConfirmation(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 30, Clock: 3000}}, Node: 0, Sent: 3})
	s.recordGrant(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Expiry: 20, Clock: 2000, Memory: "late"}}, Node: 0, Sent: 2})
	if s.expiry != 30 || s.memory != "granted" {
		t.Errorf("after a newer confirmation, and a late grant: %+v", s)
	}
}

// Each event in each state leads to this debt, and reports whether a release must be sent.
func TestNodeStateTable(t *testing.T) {
	t.Parallel()
	states := []releaseDebt{nothingOwed, releasePostponed, releaseRetryDue, releaseRetrying, releaseFailed, releaseDone}
	said := func(v wire.Verdict) node.Reply { return node.Reply{Vote: quorum.NewVote(v, nil)} }
	revoked := said(wire.Gone)
	revoked.Revoked = true
	refused := said(wire.Gone)
	refused.Refused = true

	type outcome struct {
		owed [6]releaseDebt // the debt afterwards, by the debt before
		asks [6]bool
	}

	same := [6]releaseDebt{nothingOwed, releasePostponed, releaseRetryDue, releaseRetrying, releaseFailed, releaseDone}
	confirmed := [6]releaseDebt{releaseDone, releaseDone, releaseDone, releaseDone, releaseDone, releaseDone}
	unwritten := outcome{[6]releaseDebt{nothingOwed, releasePostponed, releaseRetryDue, releaseFailed, releaseFailed, releaseDone}, [6]bool{true, false, false, false, true, false}}

	ended := func(got node.Reply, under int32, cooldown bool) func(*nodeState) bool {
		return func(s *nodeState) bool {
			s.unansweredReleases = under
			_, again := s.recordRelease(got, cooldown)
			return again
		}
	}

	for name, c := range map[string]struct {
		event func(s *nodeState) (asks bool)
		want  outcome
	}{
		"an end is confirmed":            {ended(said(wire.Granted), 0, false), outcome{owed: confirmed}},
		"an end is not answered":         {ended(said(wire.TimedOut), 0, false), unwritten},
		"an end is refused":              {ended(said(wire.Failed), 0, false), unwritten},
		"it is not there":                {ended(said(wire.Gone), 0, false), outcome{owed: same}},
		"… and another end is under way": {ended(said(wire.Gone), 1, false), outcome{owed: confirmed}},
		"… and a cooldown was to begin":  {ended(said(wire.Gone), 1, true), outcome{owed: same}},
		"… for it was refused before":    {ended(refused, 1, false), outcome{owed: same}},
		"… for it was revoked":           {ended(revoked, 1, false), outcome{owed: same}},
		"it comes too late to rest":      {ended(said(wire.TooLate), 0, true), outcome{owed: same}},
		"a late grant, told later":       {func(s *nodeState) bool { what, now := s.debtIfGranted(); return now && what == releasePostponed }, outcome{same, [6]bool{1: true}}},
		"a late grant, told in vain":     {func(s *nodeState) bool { what, now := s.debtIfGranted(); return now && what == releaseRetryDue }, outcome{same, [6]bool{4: true}}},
		"due, and nothing can be there":  {func(s *nodeState) bool { tell, _ := s.takeDue(); return tell }, outcome{owed: [6]releaseDebt{nothingOwed, nothingOwed, nothingOwed, releaseRetrying, releaseFailed, releaseDone}}},
		"due, and something may arrive":  {func(s *nodeState) bool { s.unanswered = 1; tell, _ := s.takeDue(); return tell }, outcome{[6]releaseDebt{nothingOwed, nothingOwed, releaseRetrying, releaseRetrying, releaseFailed, releaseDone}, [6]bool{1: true, 2: true}}},
		"due, and it has it":             {func(s *nodeState) bool { s.expiry = 1; tell, _ := s.takeDue(); return tell }, outcome{[6]releaseDebt{nothingOwed, nothingOwed, releaseRetrying, releaseRetrying, releaseFailed, releaseDone}, [6]bool{1: true, 2: true}}},
		"due for the first time":         {func(s *nodeState) bool { _, first := s.takeDue(); return first }, outcome{[6]releaseDebt{nothingOwed, nothingOwed, nothingOwed, releaseRetrying, releaseFailed, releaseDone}, [6]bool{1: true}}},
		"a request is sent, and answered": {func(s *nodeState) bool {
			s.recordSent(wire.OpRelease)
			s.recordAnswered(wire.OpRelease)
			return s.unanswered+s.unansweredReleases != 0
		}, outcome{owed: same}},
	} {
		for i, before := range states {
			s := nodeState{debt: before}
			if asks := c.event(&s); s.debt != c.want.owed[i] || asks != c.want.asks[i] {
				t.Errorf("%s, in state %d: state %d, asks %v, want state %d, %v", name, before, s.debt, asks, c.want.owed[i], c.want.asks[i])
			}
		}
	}

	for op, ends := range map[wire.Op]int32{wire.OpAcquire: 0, wire.OpRenew: 0, wire.OpComplete: 0, wire.OpRelease: 1} {
		var s nodeState
		if s.recordSent(op); s.unanswered != 1 || s.unansweredReleases != ends {
			t.Errorf("op %d under way: %+v", op, s)
		}
	}
}

// A confirmation shows that this machine was suspended if the node's clock has advanced by more than the window beyond
// the time that has passed here.
func TestNodeStateSlept(t *testing.T) {
	t.Parallel()
	const window, second = 400 * time.Millisecond, 1_000_000
	for _, c := range []struct {
		verdict    wire.Verdict
		window     time.Duration
		there      wire.NodeTime // time on the node's clock since the last confirmation, which was at 1 s
		here       time.Duration // time on this clock since then
		has, slept bool
	}{
		{wire.Granted, window, 10 * second, 10 * time.Second, true, false},
		{wire.Granted, window, 10*second + 400_000, 10 * time.Second, true, false},
		{wire.Healed, window, 10*second + 400_001, 10 * time.Second, true, true},
		{wire.Passed, 0, 99 * second, 10 * time.Second, true, false},
		{wire.Gone, window, 99 * second, 10 * time.Second, false, false},
	} {
		s := nodeState{expiry: 1, nodeClock: second, confirmedAt: clock.Instant(time.Second)}
		got := node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Verdict: c.verdict, Clock: second + c.there, Expiry: 2}, Latency: 100 * time.Millisecond}, Sent: clock.Instant(time.Second + c.here - 100*time.Millisecond)}
		if has, slept := s.recordRenewal(got, c.window); has != c.has || slept != c.slept {
			t.Errorf("%+v: has %v, slept %v", c, has, slept)
		}
	}

	s := nodeState{}
	if _, slept := s.recordRenewal(node.Reply{Vote: quorum.Vote{Reply: wire.Reply{Verdict: wire.Granted, Clock: 99 * second}}}, window); slept {
		t.Error("the first confirmation shows nothing")
	}
}

// ClockOffset returns the median of the nodes' offsets, so the offset of a single node does not matter.
func TestClockOffset(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.nodes[0].StepClock(300 * time.Millisecond)
		w.nodes[1].StepClock(200 * time.Millisecond)
		w.nodes[2].StepClock(-time.Hour)
		w.release(w.holds(p, "k"))
		synctest.Wait()
		offset, ok := p.ClockOffset()
		if want := 200 * time.Millisecond; !ok || offset != want {
			t.Errorf("offset %v, %v, want %v", offset, ok, want)
		}
		for _, n := range w.nodes[:2] { // after this step, the older measurements do not count any more
			n.StepClock(-200 * time.Millisecond)
		}
		w.release(w.holds(p, "k"))
		synctest.Wait()
		if offset, _ := p.ClockOffset(); offset != 0 {
			t.Errorf("offset %v after the clocks were set", offset)
		}
	})
}
