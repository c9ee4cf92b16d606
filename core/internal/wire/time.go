package wire

// Which instant is in which time:
//
//	clock.Instant  when something was sent and answered, the ends of trust and of MaxHold, plans of the watchdog, pauses
//	NodeTime       the expiry of a lease, until when a record counts, quarantines, a reply's clock: each node by its own
//	Stamp          when a call began and the token that a request proposes: this machine's wall clock
//	uint64         a fencing token: microseconds of the clock of the node that gave it out, or of who proposed it
//
// Durations are the same in all. HeardClock and Skew alone compare a node's clock with this machine's.

import (
	"math"
	"time"
)

const (
	// Slack is by how much a lease outlives its logical expiry in Redis: a server clock that steps forward
	// by less than this, and back, destroys nothing.
	Slack = 24 * time.Hour
	// ClockJump is by how much a clock may jump ahead, and back, without Redis dropping a record or a counter.
	ClockJump = 2 * time.Hour
	// IdleFence is how long a fencing counter at least outlives the last use of its key. It may vanish
	// then: the next one starts from the clock, which has passed it.
	IdleFence = time.Hour
)

// A NodeTime is a time of one node's wall clock, in µs. Times of two nodes cannot be compared; nor can those of a node and
// this machine, but by Skew.
type NodeTime int64

// nodeMillis is the time that scripts and records have in ms, at most maxNumber.
func nodeMillis(ms int64) NodeTime { return NodeTime(1000 * ms) }

// NodeTimeOf is a time that a node told.
func NodeTimeOf(t time.Time) NodeTime { return NodeTime(t.UnixMicro()) }

// Millis is the time in ms, as scripts and records have it.
func (t NodeTime) Millis() int64 { return int64(t) / 1000 }

// Since is how much later t is than u, on the same node, or centuries.
func (t NodeTime) Since(u NodeTime) time.Duration {
	const most = NodeTime(math.MaxInt64 / time.Microsecond)
	return time.Duration(max(-most, min(t-u, most))) * time.Microsecond
}

// Skew is by how much the node's clock is ahead of this machine's.
func (t NodeTime) Skew(wall time.Time) time.Duration { return t.Since(NodeTimeOf(wall)) }

// Lead is by how much the time in a token is ahead of t, the clock of the node that gave it out.
func (t NodeTime) Lead(token uint64) time.Duration { return NodeTime(token).Since(t) }

// Whole is t in whole milliseconds, as scripts count.
func (t NodeTime) Whole() NodeTime { return t - t%1000 }

// A Stamp is a time of this machine's wall clock, as requests say it.
type Stamp struct{ µs int64 }

// StampOf is a time of this machine's wall clock.
func StampOf(wall time.Time) Stamp { return Stamp{wall.UnixMicro()} }

// Millis is a duration, as requests say it.
type Millis struct{ ms int64 }

// MillisOf is d in whole milliseconds.
func MillisOf(d time.Duration) Millis { return Millis{d.Milliseconds()} }
