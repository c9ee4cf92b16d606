package quorum

import (
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
