package core

// A Verdict is what one node made of one request.
type Verdict uint8

const (
	Failed      Verdict = iota // no usable answer; Err says why
	Pending                    // not answered when the outcome was decided without it
	Granted                    // yes: granted, renewed, released or recorded
	Healed                     // renewed, after the node had lost its memory or the lease
	Passed                     // renewed, where others have been granted the key since: Complete does not count there
	Unconfirmed                // promoted so lately that the old primary may still serve: not counted
	Held                       // another attempt holds the key
	Reserved                   // the key is free, and it is the turn of somebody who has waited for longer
	Done                       // a completion record stands
	Gone                       // the lease is not, or no longer, on this node
	Forgotten                  // cannot record a completion: the node may have forgotten a later holder
	Quarantined                // the node lost its memory and waits until every lease it may have forgotten is over
	ClockSkewed                // the clocks of node and client differ by more than the clock window
	TooLate                    // the request was under way for longer than the clock window
	Replica                    // the node is not a master
	Unguarded                  // the server does not report its replication history
	Overflow                   // the fencing counter is at its end
	TimedOut                   // no answer within the node timeout
	CircuitOpen                // not asked: the node has not been answering
)

var verdictNames = [...]string{"failed", "pending", "granted", "healed", "passed", "unconfirmed", "held", "reserved", "done", "gone", "forgotten", "quarantined",
	"clock_skewed", "too_late", "replica", "unguarded", "overflow", "timed_out", "circuit_open"}

// String returns the verdict in snake_case, fit for a metric attribute.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown"
}
