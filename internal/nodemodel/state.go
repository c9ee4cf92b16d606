package nodemodel

import (
	"fmt"
	"maps"
)

// How much longer Redis keeps the parts of a node's memory than scripts heed them.
const (
	slack   = 24 * 60 * 60 * 1000 // of a lease
	jump    = 2 * 60 * 60 * 1000  // of a record and of a counter
	minIdle = 60 * 60 * 1000      // of a counter that nobody uses; at least the longest lease

	Rejoined = 5000 // of a queue that a call has rejoined; those that wait join it each second
)

// Turn is how long a free key waits for each of the first three waiters.
const Turn = 50

// MarkLife is how long an operator's mark stands, µs.
const MarkLife = 10 * 60 * 1_000_000

// noMemory is the name of a node's memory if there is no guard.
const noMemory = "-"

// cooldownPrefix stands before the owner of a key in a cooldown.
const cooldownPrefix = "~"

// A Node is the memory of one node.
type Node struct {
	History string // the replication history of the server
	Replica bool
	Hidden  bool // INFO does not show the history

	Guard Guard
	Note  Note
	Keys  map[string]Key
}

// A Guard is the guard record. The zero Guard is none.
type Guard struct {
	History  string // the memory is named by the history under which it began,
	Since    int64  // when it began,
	Declared bool   // and whether an operator has declared it new

	Longest  int64 // the longest lease in use
	MarkTo   int64 // an operator's mark: the value to which Longest is to be lowered; 0 if there is no mark,
	MarkedAt int64 // and when the node was marked, µs
	Claimant string
}

// Memory returns the name of the memory.
func (g Guard) Memory() string {
	if g == (Guard{}) {
		return noMemory
	}
	name := fmt.Sprintf("%s.%d", g.History, g.Since)
	if g.Declared {
		name += "!"
	}

	return name
}

// withoutMark returns the guard record without an operator's mark.
func (g Guard) withoutMark() Guard {
	g.MarkTo = 0
	g.MarkedAt = 0
	return g
}

// Mark returns the mark as the record has it.
func (g Guard) Mark() string {
	if g.MarkTo == 0 {
		return ""
	}

	return fmt.Sprintf(">%d@%d", g.MarkTo, g.MarkedAt)
}

// String returns the text of the record.
func (g Guard) String() string {
	if g == (Guard{}) {
		return ""
	}
	text := fmt.Sprintf("%s %d%s", g.Memory(), g.Longest, g.Mark())
	if g.Claimant != "" {
		text += " " + g.Claimant
	}

	return text
}

// A Note says since when the guard record has its longest lease, if that has changed.
type Note struct{ Longest, Since int64 }

// A Key is the memory that a node has of one key.
type Key struct {
	// The lease.
	Owner   string // the attempt that has the key, or had it last; "~" and its name in a cooldown
	Expiry  int64  // the lease is live until then, inclusive; 0 if it was ended
	Counter int64  // the last fencing token
	Before  int64  // the counter before the owner's grant; -1 if the owner was not granted the key, or has ended
	Carried string

	// The turn of an attempt after its renewal was refused.
	Turn      string
	TurnUntil int64

	Record *Record

	// The queue. A resource is marked while a call may wait.
	Queue     []Wait // in its order
	Marked    bool
	HoldEnded int64 // when the last hold ended; 0 if no turns are counted
	QueueDies int64 // µs

	Ends map[string]End // tombstones, by attempt

	Dies int64 // when Redis drops the resource, µs; 0 if there is none
}

// A Record is a completion record.
type Record struct {
	Ballot, Kept, Token int64
	Result              string
}

// A Wait is a waiting call.
type Wait struct {
	Member string // how to publish ("P", or "S" for a sharded channel), the channel, and the call's name there
	Ticket int64  // when the call began, by the client's clock, µs
}

// An End is how an attempt has ended on the node.
type End struct {
	How  string // one of the words below
	Dies int64  // µs
}

const (
	released  = "1"
	completed = "2"
	refused   = "3"
	revoked   = "4"
)

// withoutTurn returns the key without the turn of an attempt.
func (k Key) withoutTurn() Key {
	k.Turn = ""
	k.TurnUntil = 0
	return k
}

// withoutResource returns the key without its resource. The queue and the tombstones stand under other Redis keys.
func (k Key) withoutResource() Key {
	return Key{Before: -1, Ends: k.Ends, Queue: k.Queue, QueueDies: k.QueueDies}
}

// Live reports whether the key is taken.
func (k Key) Live(ms int64) bool { return ms <= k.Expiry }

// end returns how an attempt has ended on this node. Its tombstone says so, or the name of the last owner.
func (k Key) end(attempt string) string {
	if e, ok := k.Ends[attempt]; ok {
		return e.How
	}
	byName := k.Owner == attempt && k.Expiry == 0 || k.Owner == cooldownPrefix+attempt
	if byName {
		return released
	}

	return ""
}

// bury leaves a tombstone. RELEASED and REVOKED never change.
func (k Key) bury(attempt, how string, life, µs int64) Key {
	switch e := k.Ends[attempt]; {
	case e.How == revoked:
		return k // its tombstone outlives this one
	case e.How == released:
		how = released
	}
	k.Ends = maps.Clone(k.Ends)
	k.Ends[attempt] = End{how, µs + life*1000}
	return k
}

// keep sets how long Redis keeps the resource: a taken one for a day more, a record for two hours more, and a counter
// for an hour (or the longest lease) and two hours, longer if it is ahead of the clock.
func (k Key) keep(at instant) Key {
	life := at.idle() + max(0, k.Counter/1000-at.ms)
	if k.Expiry > 0 {
		life = max(life, k.Expiry+slack-at.ms)
	}
	if k.Record != nil {
		life = max(life, k.Record.Kept+jump-at.ms)
	}

	k.Dies = at.µs + life*1000
	return k
}

// shownRecord returns the record as replies show it, or nil if there is none or its retention is over.
func (k Key) shownRecord(ms int64) *ShownRecord {
	d := k.Record
	if d == nil || d.Kept <= ms {
		return nil
	}

	return &ShownRecord{Ballot: d.Ballot, Retention: d.Kept - ms, Token: d.Token, Result: d.Result}
}
