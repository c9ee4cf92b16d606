package core

// A Verdict is what one node made of one request.
type Verdict uint8

const (
	VerdictFailed      Verdict = iota // no usable answer; Err says why
	VerdictPending                    // not answered when the outcome was decided without it
	VerdictGranted                    // yes: granted, renewed, released or recorded
	VerdictHealed                     // renewed, after the node had lost its memory or the lease
	VerdictPassed                     // renewed, where others have been granted the key since: Complete does not count there
	VerdictUnconfirmed                // promoted so lately that the old primary may still serve: not counted
	VerdictHeld                       // another attempt holds the key
	VerdictReserved                   // the key is free, and it is the turn of somebody who has waited for longer
	VerdictDone                       // a completion record stands
	VerdictGone                       // the lease is not, or no longer, on this node
	VerdictForgotten                  // cannot record a completion: the node may have forgotten a later holder
	VerdictQuarantined                // the node lost its memory and waits until every lease it may have forgotten is over
	VerdictClockSkewed                // the clocks of node and client differ by more than the clock window
	VerdictTooLate                    // the request was under way for longer than the clock window, or came when no cooldown could begin any more
	VerdictReplica                    // the node is not a master
	VerdictUnguarded                  // the server does not report its replication history
	VerdictTimedOut                   // no answer within the node timeout
	VerdictCircuitOpen                // not asked: the node has not been answering
)

var verdictNames = [...]string{"failed", "pending", "granted", "healed", "passed", "unconfirmed", "held", "reserved", "done", "gone", "forgotten", "quarantined",
	"clock_skewed", "too_late", "replica", "unguarded", "timed_out", "circuit_open"}

// String returns the verdict in snake_case, fit for a metric attribute.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown"
}
