package core

import (
	"math"
	"time"
)

type nodeTime int64

// nodeMillis is the time that scripts and records have in ms, at most maxNumber.
func nodeMillis(ms int64) nodeTime    { return nodeTime(1000 * ms) }
func (t nodeTime) millis() int64      { return int64(t) / 1000 }
func nodeTimeOf(t time.Time) nodeTime { return nodeTime(t.UnixMicro()) }

// since is how much later t is than u, on the same node, or centuries.
func (t nodeTime) since(u nodeTime) time.Duration {
	const most = nodeTime(math.MaxInt64 / time.Microsecond)
	return time.Duration(max(-most, min(t-u, most))) * time.Microsecond
}

// skew is by how much the node's clock is ahead of this machine's.
func (t nodeTime) skew(wall time.Time) time.Duration { return t.since(nodeTimeOf(wall)) }

// leads is by how much the time in a token is ahead of the clock of the node that gave it out.
func leads(token uint64, clock nodeTime) time.Duration { return nodeTime(token).since(clock) }

// date is when a token was given out, as far as the clocks of nodes are right.
func date(token uint64) time.Time { return time.UnixMicro(int64(token)) }

// stamp is the wall clock as scripts have it.
func stamp(wall time.Time) int64 { return wall.UnixMicro() }
