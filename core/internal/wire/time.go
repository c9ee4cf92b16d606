package wire

// Each kind of time has a type:
//
//	clock.Instant  times of requests and answers, the ends of trust and of MaxHold, plans of the watchdog, pauses
//	NodeTime       the expiry of a lease or a record, quarantines, the clock in a reply: by the wall clock of one node
//	Stamp          the beginning of a call, and the token that a request proposes: by this machine's wall clock
//	uint64         a fencing token: microseconds of the clock of the node that granted it, or of its proposer
//
// Durations are the same everywhere. Only HeardClock and Skew compare a node's clock with this machine's.

import (
	"math"
	"time"
)

const (
	// ExpirySlack is how long Redis keeps a lease after its logical expiry: a server clock that steps forward by less than
	// this, and back, destroys nothing.
	ExpirySlack = 24 * time.Hour

	// ClockJump is how far a clock may jump ahead, and back, without Redis dropping a record or a counter.
	ClockJump = 2 * time.Hour

	// IdleFence is how long Redis keeps a fencing counter at least after the last use of its key. It may vanish after
	// that, because the next counter starts from the clock, which has passed it.
	IdleFence = time.Hour
)

// A NodeTime is a time of one node's wall clock, in µs. It cannot be compared with times of other nodes. Only Skew
// compares it with times of this machine.
type NodeTime int64

// nodeMillis converts a time of a script or a record, in ms and at most maxNumber.
func nodeMillis(ms int64) NodeTime {
	return NodeTime(1000 * ms)
}

// NodeTimeOf converts a time that a node reported.
func NodeTimeOf(t time.Time) NodeTime {
	return NodeTime(t.UnixMicro())
}

// Millis returns t in ms, as scripts and records have it.
func (t NodeTime) Millis() int64 {
	return int64(t) / 1000
}

// Since returns t-u, for times of the same node. The result saturates at about 292 years.
func (t NodeTime) Since(u NodeTime) time.Duration {
	const most = NodeTime(math.MaxInt64 / time.Microsecond)
	return time.Duration(max(-most, min(t-u, most))) * time.Microsecond
}

// Skew returns how far t, the node's clock, is ahead of wall, this machine's clock.
func (t NodeTime) Skew(wall time.Time) time.Duration {
	return t.Since(NodeTimeOf(wall))
}

// Lead returns how far the time in a token is ahead of t, the clock of the node that granted it.
func (t NodeTime) Lead(token uint64) time.Duration {
	return NodeTime(token).Since(t)
}

// TruncateToMillis returns t truncated to milliseconds, as scripts count.
func (t NodeTime) TruncateToMillis() NodeTime {
	return t - t%1000
}

// A Stamp is a time of this machine's wall clock, as requests contain it.
type Stamp struct{ µs int64 }

// StampOf converts a time of this machine's wall clock.
func StampOf(wall time.Time) Stamp {
	return Stamp{wall.UnixMicro()}
}

// A Millis is a duration, as requests contain it.
type Millis struct{ ms int64 }

// MillisOf truncates d to milliseconds.
func MillisOf(d time.Duration) Millis {
	return Millis{d.Milliseconds()}
}
