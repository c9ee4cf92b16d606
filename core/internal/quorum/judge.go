package quorum

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An Outcome is what the votes of a round come to that asked for a key.
type Outcome uint8

const (
	Held        Outcome = iota // somebody holds it
	Queued                     // likewise, and a quorum has the call in its queue, and tells when it is its turn
	SharedTurn                 // it was the turn of this call and of another
	Split                      // several contenders have a part of the votes each
	Unsettled                  // there is a record that is not decided, and may be settled
	Quarantined                // too few nodes vote yet
	OutOfReach                 // too few nodes answer, or can vote
	Done                       // a quorum holds one completion record
	Won                        // a quorum granted the key
)

// A Fate is what the votes of a round come to that was about a lease.
type Fate uint8

const (
	Undecided Fate = iota // too few nodes answered
	Confirmed             // a quorum confirmed it
	Slept                 // likewise, and shows that this machine's clock stood still
	Taken                 // so many nodes do not have the lease that no quorum can
	Revoked               // somebody has ended it
	Forgotten             // so many nodes lost their memory that no quorum can tell
)

// Acquired says what came of a round that asked for a key.
func (t *Tally) Acquired() Outcome {
	granted, queued, voters := t.Count(wire.Granted), t.Queued().Len(), t.Voters()
	done, _ := t.DoneVotes()
	switch {
	case done >= t.Q:
		return Done
	case granted+t.Count(wire.Done) >= t.Q && t.Record() != nil:
		return Unsettled
	case granted >= t.Q:
		return Won
	case voters < t.Q && voters+t.Count(wire.Quarantined) >= t.Q:
		return Quarantined
	case voters < t.Q:
		return OutOfReach
	case queued+granted >= t.Q && granted > 0 && t.Split():
		return SharedTurn
	case queued >= t.Q:
		return Queued
	case t.Split():
		return Split
	}
	return Held
}

// Renewed says what came of a renewal.
func (t *Tally) Renewed() Fate {
	switch {
	case t.Confirmed() && t.Slept() >= t.Q:
		return Slept
	case t.Confirmed():
		return Confirmed
	case t.Outvoted():
		return t.gone()
	}
	return Undecided
}

// Released says what came of a release.
func (t *Tally) Released() Fate {
	switch {
	case t.Outvoted() || t.Revoked():
		return t.gone()
	case t.Confirmed():
		return Confirmed
	}
	return Undecided
}

func (t *Tally) gone() Fate {
	if t.Revoked() {
		return Revoked
	}
	return Taken
}

// Recorded says what came of offering a record with that token. A quorum that holds the same record under another ballot,
// because somebody settled it, is as good as one that accepted it.
func (t *Tally) Recorded(token uint64) Fate {
	done, other := t.DoneVotes()
	switch {
	case t.Count(wire.Granted) >= t.Q || done >= t.Q && other.Token == token:
		return Confirmed
	case done >= t.Q || t.Count(wire.Gone, wire.Done) > len(t.Votes)-t.Q:
		return Taken
	case t.RecordRefused():
		return Forgotten
	}
	return Undecided
}

// Why is what the node said, in plain words.
func (v *Vote) Why() string {
	switch v.Verdict {
	case wire.Held:
		return fmt.Sprintf("held for another %v", v.Rest.Round(time.Millisecond))
	case wire.Quarantined:
		return fmt.Sprintf("quarantined for another %v, because it may have lost its memory", v.Rest.Round(time.Millisecond))
	case wire.Forgotten:
		return "has lost its memory since it confirmed the lease"
	case wire.Unconfirmed:
		return "was promoted a moment ago, and does not count yet"
	case wire.ClockSkewed:
		return fmt.Sprintf("its clock is off by %v: check NTP on both machines", v.Skew.Round(time.Millisecond))
	case wire.TooLate:
		return "the request arrived too late"
	case wire.Replica:
		return "is a replica, not a master"
	case wire.Unguarded:
		return "does not report its replication history"
	default:
		if v.Err != nil {
			return cmp.Or(goredis.Lasting(v.Err), v.Err).Error() // with how to mend it, where that is known
		}
	}
	return v.Verdict.String()
}
