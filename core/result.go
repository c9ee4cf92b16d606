package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// A result is how one attempt ended: a lease, or why there is none.
type result struct {
	lease   *Lease
	err     error // sentinel
	held    HeldKind
	hint    string        // of the holder that is in the way
	at      clock.Instant // when it ended
	retry   time.Duration // from then on
	rests   time.Duration // from then on nobody gets the key for so long
	record  *Record
	nodes   []NodeReply
	pause   pause
	silent  clock.Instant // since when no quorum has been reachable; 0 = one is
	recover bool          // try again at once, settling the completion record
	again   bool          // try again at once, with what was learnt
	open    bool          // nodes that have not answered might have made it another
}

// A pause says what an attempt failed for, and so how long to wait before the next.
type pause uint8

const (
	pauseHeld        pause = iota // somebody holds it: poll
	pauseQueued                   // a quorum has the call in its queue, and tells when it is its turn
	pauseTurn                     // likewise, and it was the turn of this call and of another
	pauseSplit                    // several contenders have a part each: a short random time breaks the tie
	pauseQuarantined              // nodes will vote by themselves
	pauseOutOfReach               // nodes do not answer
)
