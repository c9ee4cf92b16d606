package quorum

import "github.com/lockkit/lockkit/core/internal/wire"

// An Outcome is the result of a round that asked for a key.
type Outcome uint8

const (
	Held        Outcome = iota // the key is held
	Queued                     // the key is held; a quorum has the call in its queue, and notifies it when its turn comes
	SharedTurn                 // it was the turn of this call and of another one
	Split                      // several contenders have some of the votes each
	Unsettled                  // there is a completion record that is on too few nodes to count; it can be completed
	Quarantined                // too few nodes can vote, because of quarantines
	OutOfReach                 // too few nodes answered, or can vote
	Done                       // a quorum holds one completion record
	Won                        // a quorum granted the key
)

// A LeaseOutcome is the result of a round about a lease.
type LeaseOutcome uint8

const (
	Inconclusive LeaseOutcome = iota // too few nodes answered
	Confirmed                        // a quorum confirmed the request
	ClockStopped                     // a quorum confirmed the request, and shows that this machine's clock stood still
	Taken                            // too many nodes do not have the lease for a quorum to have it
	Revoked                          // the lease was revoked
	Forgotten                        // too many nodes lost their memory for a quorum to know
)

// AcquireOutcome returns the outcome of a round that asked for a key.
func (t *Tally) AcquireOutcome() Outcome {
	granted := t.Count(wire.Granted)
	queued := t.Queued().Len()
	voters := t.Voters()
	done, _ := t.CountDone()

	switch {
	case done >= t.Q:
		return Done
	case t.Record() != nil && granted+t.Count(wire.Done) >= t.Q:
		// The record is on too few nodes to count. With the nodes that granted, they are enough to complete it.
		return Unsettled
	case granted >= t.Q:
		return Won
	case voters < t.Q && voters+t.Count(wire.Quarantined) >= t.Q:
		// The key can be granted when the quarantines are over.
		return Quarantined
	case voters < t.Q:
		return OutOfReach
	}
	// The key is taken. If some nodes let this call in, and no other attempt has a quorum, it was the turn of both.
	letIn := granted > 0 && queued+granted >= t.Q
	switch {
	case letIn && t.IsSplit():
		return SharedTurn
	case queued >= t.Q:
		return Queued
	case t.IsSplit():
		return Split
	}
	return Held
}

// RenewOutcome returns the result of a renewal.
func (t *Tally) RenewOutcome() LeaseOutcome {
	switch {
	case t.Confirmed() && t.CountClockStopped() >= t.Q:
		// The context of the lease has lasted too long by the clocks of the nodes.
		return ClockStopped
	case t.Confirmed():
		return Confirmed
	case t.Outvoted() && t.Revoked():
		return Revoked
	case t.Outvoted():
		return Taken
	}
	return Inconclusive
}

// ReleaseOutcome returns the result of a release.
func (t *Tally) ReleaseOutcome() LeaseOutcome {
	switch {
	case t.Revoked():
		// One node that reports a revocation is enough, even if a quorum confirms the release.
		return Revoked
	case t.Outvoted():
		return Taken
	case t.Confirmed():
		return Confirmed
	}
	return Inconclusive
}

// CompleteOutcome returns the result of offering a record with a token to the nodes. A quorum that holds the same record
// under another ballot has accepted it, too: another attempt has completed it.
func (t *Tally) CompleteOutcome(token uint64) LeaseOutcome {
	done, rec := t.CountDone()
	recorded := done >= t.Q
	refused := t.RecordRefused()

	switch {
	case t.Count(wire.Granted) >= t.Q, recorded && rec.Token == token:
		return Confirmed
	case t.Revoked() && (recorded || refused):
		// Nodes refuse the record of a revoked attempt, and let others complete the key.
		return Revoked
	case recorded, t.blocks(t.Count(wire.Gone, wire.Done)):
		// Another attempt has completed the key, or may have had it.
		return Taken
	case refused:
		// Without the nodes that lost their memory, too few nodes refused it.
		return Forgotten
	}
	return Inconclusive
}
