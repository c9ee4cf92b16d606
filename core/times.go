package core

import (
	"math"
	"sync/atomic"
	"time"
)

// Three clocks meet in this package, and no two can be compared. Each has a type, and what turns one into another, or
// into what scripts and replies have, is in this file: a time of one clock only ever meets an interval of another.
//
//	type       clock                                 what is in it
//	instant    this process's stopwatch, since it    round, reply and nodeState: sent; Lease: until, kept,
//	           was made: monotonic, and runs on      since, renewAt, trustedUntil, holdUntil; renewal.expiresAt;
//	           while the machine is suspended        attempt.notBefore; result: at, silent; breaker: since,
//	                                                 probeAt; node: checkAt, reloadAt; health.asked; lane: left, heard,
//	                                                 wakes; ensemble.answered; the watchdog's heap
//	nodeTime   one node's wall clock, µs             vote: clock, expiry; nodeState: clock, expiry; stored: expiry, kept
//	           (of two nodes: two clocks)
//	uint64     the same, but never goes back         vote.token, Lease.token, ballots. The times in them are compared
//	                                                 by leads and date alone
//	time.Time  this machine's: as a wall clock       stamps of requests and tickets, by stamp
//	           Go's monotonic clock in it            timers and deadlines of contexts; Lease.ValidUntil
//
// Intervals are a time.Duration, whatever clock has measured them: vote.rest, left and nodeRecord.rest are what is left at
// the moment of the answer, and are worth less by the latency when it is here.
type instant int64

// never is the last instant there is.
const never instant = math.MaxInt64

// add is the time d later, or never.
func (t instant) add(d time.Duration) instant {
	if d > time.Duration(never-t) {
		return never
	}
	return t + instant(d)
}

// since is how much later t is than u.
func (t instant) since(u instant) time.Duration { return time.Duration(t - u) }

// An atomicInstant is read without a lock.
type atomicInstant struct{ v atomic.Int64 }

func (a *atomicInstant) load() instant   { return instant(a.v.Load()) }
func (a *atomicInstant) store(t instant) { a.v.Store(int64(t)) }

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
