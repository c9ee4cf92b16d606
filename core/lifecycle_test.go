package core

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// The table has every event in every state of a lease: the state after it, and what the event reports.
func TestLifecycleTable(t *testing.T) {
	t.Parallel()
	states := [...]leaseState{leasePending, leaseHeld, leaseLost, leaseOver}
	for name, c := range map[string]struct {
		event   func(*lifecycle) bool
		after   [4]leaseState // by the state before
		reports [4]bool
		reason  [4]LossReason // after the event; a lease that was lost before was lost as taken
	}{
		"held": {func(l *lifecycle) bool { l.markHeld(1, 2); return l.heldSince == 1 && l.renewAt == 2 }, [4]leaseState{leaseHeld, leaseHeld, leaseHeld, leaseHeld},
			[4]bool{true, true, true, true}, [4]LossReason{2: LossTaken}},
		"lost": {func(l *lifecycle) bool { return l.markLost(LossRevoked) }, [4]leaseState{leasePending, leaseLost, leaseLost, leaseOver},
			[4]bool{1: true}, [4]LossReason{1: LossRevoked, 2: LossTaken}},
		"over": {(*lifecycle).markEnded, [4]leaseState{leaseOver, leaseOver, leaseOver, leaseOver},
			[4]bool{1: true}, [4]LossReason{2: LossTaken}},
		"released, and found lost": {func(l *lifecycle) bool { return l.recordFoundLost(LossRevoked) }, states,
			[4]bool{true, true, false, true}, [4]LossReason{LossRevoked, LossRevoked, LossTaken, LossRevoked}},
		"released, and confirmed": {func(l *lifecycle) bool { return l.recordFoundLost("") }, states, [4]bool{}, [4]LossReason{2: LossTaken}},
		"a completion is refused": {func(l *lifecycle) bool {
			l.recordCompletion(false, LossForgotten)
			return l.knownLoss() == LossForgotten
		},
			states, [4]bool{true, true, false, true}, [4]LossReason{2: LossTaken}},
		"… and the next is not answered": {func(l *lifecycle) bool {
			l.recordCompletion(false, LossForgotten)
			l.recordCompletion(false, "")
			return l.knownLoss() != "" && !l.completed && !l.recordRelease()
		}, states, [4]bool{true, true, true, true}, [4]LossReason{2: LossTaken}},
		"… and the next is confirmed": {func(l *lifecycle) bool {
			l.recordCompletion(false, LossForgotten)
			l.recordCompletion(true, "")
			return l.completed && l.knownLoss() == ""
		}, states, [4]bool{true, true, false, true}, [4]LossReason{2: LossTaken}},
		"released first": {func(l *lifecycle) bool { return l.recordRelease() && l.releaseCalled }, states, [4]bool{true, true, false, true}, [4]LossReason{2: LossTaken}},
		"released again": {func(l *lifecycle) bool { l.recordRelease(); return l.recordRelease() }, states, [4]bool{}, [4]LossReason{2: LossTaken}},
	} {
		for i, before := range states {
			l := lifecycle{state: before}
			if before == leaseLost {
				l.lossReason = LossTaken
			}
			reports := c.event(&l)
			if l.state != c.after[i] || reports != c.reports[i] || l.lossReason != c.reason[i] {
				t.Errorf("%s, in state %d: state %d, reports %v, reason %q; want %d, %v, %q", name, before, l.state, reports, l.lossReason, c.after[i], c.reports[i], c.reason[i])
			}
		}
	}
}

// A lease that ran out was ended by MaxHold if the end of its hold did not come last. All other reasons stay as they
// are.
func TestWhyALeaseHasRunOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trusted, hold clock.Instant
		reason, want  LossReason
	}{
		{5, clock.Never, LossExpired, LossExpired}, {5, 6, LossExpired, LossExpired}, {5, 5, LossExpired, LossMaxHold}, {6, 5, LossExpired, LossMaxHold},
		{6, 5, LossTaken, LossTaken}, {6, 5, LossClosed, LossClosed},
	} {
		l := term{trustedUntil: c.trusted, holdUntil: c.hold}
		if end := l.endsAt(); end != min(c.trusted, c.hold) {
			t.Errorf("%+v: ends at %d", c, end)
		}
		if why := l.refineReason(c.reason); why != c.want {
			t.Errorf("%+v: %s", c, why)
		}
	}
}

// A renewal that failed is repeated soon. A renewal that found a node taken is followed by an early one, but not twice
// in a row.
func TestWhenALeaseIsRenewed(t *testing.T) {
	t.Parallel()
	const soon, period = 1, 9
	var l lifecycle
	for i, c := range []struct {
		ok, occupied bool
		want         clock.Instant
	}{
		{true, false, period}, {false, false, soon}, {false, true, soon}, {true, true, soon}, {true, true, period}, {true, true, soon}, {true, false, period}, {true, true, soon},
	} {
		if l.recordRenewal(c.ok, c.occupied, soon, period); l.renewAt != c.want {
			t.Errorf("renewal %d: the next is at %d, want %d", i, l.renewAt, c.want)
		}
	}
}

// Leases that were acquired together are not renewed together for ever.
func TestRenewalPeriodVaries(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		lease := w.acquire(w.process(), "k")
		periods := map[time.Duration]bool{}
		for range 20 {
			d := lease.renewalPeriod()
			wantBetween(t, "period", d, lease.attempt.p.renewEvery*9/10, lease.attempt.p.renewEvery*11/10)
			periods[d] = true
		}
		if len(periods) < 2 {
			t.Errorf("always %v", periods)
		}
	})
}
