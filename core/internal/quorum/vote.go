package quorum

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
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
