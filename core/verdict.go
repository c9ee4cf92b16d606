package core

// A Verdict is what one node made of one request.
type Verdict uint8

const (
	Failed      Verdict = iota // no usable answer; Err says why
	Pending                    // not answered when the outcome was decided without it
	Granted                    // yes: granted, renewed, released or recorded
	Healed                     // renewed, after the node had lost the lease
	Unconfirmed                // renewed, but an old primary may still serve: not counted
	Held                       // another attempt holds the key
	Done                       // a completion record stands
	Gone                       // the lease is not, or no longer, on this node
	Quarantined                // the node lost its memory and waits until every lease it may have forgotten is over
	ClockSkewed                // the clocks of node and client differ by more than the clock window
	TooLate                    // the request was under way for longer than the clock window
	Replica                    // the node is not a master
	Unguarded                  // the server does not report its replication history
	Overflow                   // the fencing counter is at its end
	TimedOut                   // no answer within the node timeout
	CircuitOpen                // not asked: the node has not been answering
)

var verdictNames = [...]string{"failed", "pending", "granted", "healed", "unconfirmed", "held", "done", "gone", "quarantined",
	"clock_skewed", "too_late", "replica", "unguarded", "overflow", "timed_out", "circuit_open"}

// String returns the verdict in snake_case, fit for a metric attribute.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown"
}

var verdictOf = map[string]Verdict{
	"OK": Granted, "AGAIN": Granted, "HEALED": Healed, "WAIT": Unconfirmed, "HELD": Held, "DONE": Done,
	"LOST": Gone, "GONE": Gone, "TOMBSTONE": Gone, "QUARANTINED": Quarantined, "CLOCK": ClockSkewed,
	"REPLICA": Replica, "NOGUARD": Unguarded, "OVERFLOW": Overflow,
}
