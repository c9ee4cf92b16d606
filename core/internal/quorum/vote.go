package quorum

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Vote is the answer of one node in one round.
type Vote struct {
	wire.Reply
	Err          error
	QueueTime    time.Duration // how long the request waited for its turn, before it was sent
	Latency      time.Duration
	Skew         time.Duration // the node's wall clock minus this machine's, at the answer
	ClockStopped bool          // of a renewal: it shows that this machine's clock stood still since the last round
}

// NewVote returns a vote with a verdict and the reason for it, and nothing else.
func NewVote(v wire.Verdict, err error) Vote {
	return Vote{Reply: wire.Reply{Verdict: v}, Err: err}
}

// hasRecord reports whether the node holds a completion record. A record counts even on a node in quarantine: the
// node has accepted it once, and that is enough.
func (v *Vote) hasRecord() bool {
	return v.Record != nil && (v.Verdict == wire.Done || v.Verdict == wire.Quarantined)
}

// Explain returns the answer of the node as text for people.
func (v *Vote) Explain() string {
	switch v.Verdict {
	case wire.Held:
		return fmt.Sprintf("held for another %v", v.Remaining.Round(time.Millisecond))
	case wire.Quarantined:
		return fmt.Sprintf("quarantined for another %v, because it may have lost its memory", v.Remaining.Round(time.Millisecond))
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
			return cmp.Or(goredis.AsLasting(v.Err), v.Err).Error() // with the way to fix it, if that is known
		}
	}
	return v.Verdict.String()
}
