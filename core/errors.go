package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinels say what to do. Match them with [errors.Is]; [OpError] says what happened.
var (
	// ErrHeld: somebody else holds the key, or has waited for it and comes first. Skip, or try again after
	// OpError.RetryAfter, or a pause of your own where that is 0.
	ErrHeld = errors.New("held by another holder")
	// ErrDone: the key is recorded as completed (OpError.Record). Nothing is left to do.
	ErrDone = errors.New("already completed")
	// ErrUnavailable: no quorum of nodes could be reached, or could vote. Alert; try again later.
	ErrUnavailable = errors.New("no quorum of nodes available")
	// ErrLost: the lease ended before its holder ended it. Stop acting on it.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause of a lease's context that ended by Release or Complete. Nothing returns it
	// but an operation on a lease that is over.
	ErrReleased = errors.New("lease released")
	// ErrClosed: the Locker is closed.
	ErrClosed = errors.New("locker closed")
)

// A LossReason says why a lease was lost.
type LossReason string

const (
	LossExpired LossReason = "expired" // no quorum confirmed a renewal in time, or there is no watchdog
	LossTaken   LossReason = "taken"   // a quorum can no longer confirm it: nodes forgot it, or it was taken over
	// LossForgotten: so many nodes lost their memory since they last confirmed the lease in time that too few can
	// tell whether somebody else was granted the key. Only of Complete.
	LossForgotten LossReason = "forgotten"
	LossClock     LossReason = "clock"    // this machine's clock stood still: the lease is older than it seems
	LossMaxHold   LossReason = "max_hold" // held for longer than WithMaxHold allows
	LossClosed    LossReason = "closed"   // the Locker was closed
)

// A Record is a completion record: the proof that a key is done.
type Record struct {
	Token  uint64 // fencing token of the lease that completed the key
	Result []byte // what it passed to Complete
}

// An OpError says what happened to an operation, node by node. It matches, by [errors.Is], exactly one of
// the sentinels of this package or the error of the caller's context, and in addition the errors of the
// nodes.
//
// RetryAfter comes with ErrHeld: the time until the nodes free the key if its holder vanishes now, the same
// for whoever asks. A holder that renews keeps it for longer, one that releases it frees it sooner, and who waits
// may come first. With ErrUnavailable it is the time until a quorum of nodes votes again, or until a key frees
// itself whose release could not be confirmed. With any other error it is 0.
type OpError struct {
	Op         OpKind
	Key        string
	Err        error         // the sentinel, or the context's error
	Reason     LossReason    // with ErrLost
	RetryAfter time.Duration // see below; 0 = unknown
	Record     *Record       // with ErrDone
	Nodes      []NodeReply   // what each node said in the last round
}

func (e *OpError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lockkit: %s %q: %v", e.Op, e.Key, e.Err)
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter.Round(time.Millisecond))
	}
	sep := ": "
	for _, n := range e.Nodes {
		if n.Verdict != Pending {
			b.WriteString(sep)
			b.WriteString(n.String())
			sep = "; "
		}
	}
	return b.String()
}

// Unwrap returns the sentinel or context error, and the errors of the nodes, but for those that read like
// the end of the caller's context.
func (e *OpError) Unwrap() []error {
	errs := make([]error, 1, 1+len(e.Nodes))
	errs[0] = e.Err
	for _, n := range e.Nodes {
		// The timeout of a dial is a context.DeadlineExceeded, too, but not the caller's.
		if n.Err != nil && !timeUp(n.Err) {
			errs = append(errs, n.Err)
		}
	}
	return errs
}

// A NodeReply is what one node made of the last round of an operation.
type NodeReply struct {
	Node    int    // index in the list given to New
	Addr    string // its address, where the client tells
	Verdict Verdict
	Rest    time.Duration // Held, Quarantined: time left
	Skew    time.Duration // node's wall clock minus this process's, when it answered; within Latency
	Latency time.Duration // from request to answer
	Err     error         // Failed, TimedOut, CircuitOpen: why, with what the node failed with before where that is known
}

// String describes the reply for a log line.
func (n NodeReply) String() string {
	s := nodeName(n.Node, n.Addr)
	switch n.Verdict {
	case Held:
		return fmt.Sprintf("%s: held for another %v", s, n.Rest.Round(time.Millisecond))
	case Quarantined:
		return fmt.Sprintf("%s: quarantined for another %v, because it is new, was restarted, or may have lost its memory: it votes by itself then", s, n.Rest.Round(time.Millisecond))
	case Forgotten:
		return s + ": has lost its memory since it last confirmed the lease, so it cannot vouch that nobody else was granted the key"
	case Unconfirmed:
		return s + ": was promoted a moment ago, and the old primary may still serve: not counted yet"
	case ClockSkewed:
		return fmt.Sprintf("%s: its clock is off by %v, more than the clock window allows: check NTP on both machines", s, n.Skew.Round(time.Millisecond))
	case TooLate:
		return s + ": the request arrived too late to count"
	case Replica:
		return s + ": is a replica, not a master"
	case Unguarded:
		return s + ": does not report its replication history, which the restart guard needs"
	}
	if n.Err != nil {
		return fmt.Sprintf("%s: %v", s, n.Err)
	}
	return fmt.Sprintf("%s: %v", s, n.Verdict)
}

var (
	errNodeTimeout = errors.New("no answer within the node timeout")
	errCircuitOpen = errors.New("not asked, because it has not been answering")
	errOverloaded  = errors.New("not asked, because too many requests are under way")
)

func nodeName(index int, addr string) string {
	if addr == "" {
		return fmt.Sprintf("node %d", index)
	}
	return fmt.Sprintf("node %d (%s)", index, addr)
}

// timeUp reports whether err reads like the end of a context.
func timeUp(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
