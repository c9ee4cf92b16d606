// Package quorum counts what nodes vote, and judges what that comes to. It does no I/O and knows no clock: who has the votes
// of a round asks [Tally] whether more of them could change the outcome, and what the outcome is.
package quorum

import (
	"math/bits"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Vote is what one node answered in one round.
type Vote struct {
	wire.Reply
	Err     error
	Waited  time.Duration // for its turn, before it was sent
	Latency time.Duration
	Skew    time.Duration // node's wall clock minus ours at the answer
	Slept   bool          // renewed: shows that our clock stood still meanwhile
}

// Said is a vote of no more than a verdict, and why.
func Said(v wire.Verdict, err error) Vote { return Vote{Reply: wire.Reply{Verdict: v}, Err: err} }

// done reports whether the node holds a record. One in quarantine does too, whatever else it has forgotten: that
// it accepted the record once is enough.
func (v *Vote) done() bool {
	return v.Record != nil && (v.Verdict == wire.Done || v.Verdict == wire.Quarantined)
}

// A Set is a set of nodes, by their indexes.
type Set uint64

// MaxNodes fits a Set; nobody votes with more.
const MaxNodes = 64

// All are n nodes.
func All(n int) Set { return Set(1)<<n - 1 }

// Of is how many of n nodes are a quorum.
func Of(n int) int { return n/2 + 1 }

// Has reports whether a node is in the set.
func (s Set) Has(i int) bool { return s>>i&1 == 1 }

// With is the set with a node.
func (s Set) With(i int) Set { return s | 1<<i }

// Without is the set without a node.
func (s Set) Without(i int) Set { return s &^ (1 << i) }

// Len is how many nodes are in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

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
