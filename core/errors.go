package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Each sentinel asks for a different reaction. Match them with [errors.Is]; [OpError] describes the failure.
var (
	// ErrHeld: another holder has the key, or an earlier waiter gets it first. Skip, or try again after
	// OpError.RetryAfter, or after a pause of your own if that is 0.
	ErrHeld = errors.New("held by another holder")
	// ErrDone: the key is recorded as completed (OpError.Record). Nothing is left to do.
	ErrDone = errors.New("already completed")
	// ErrUnavailable: no quorum of nodes could be reached, or could vote. Alert; try again later.
	ErrUnavailable = errors.New("no quorum of nodes available")
	// ErrLost: the lease ended before its holder ended it. Stop acting on it.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause of a lease's context after Release or Complete. Only operations on a lease that is over
	// return it.
	ErrReleased = errors.New("lease released")
	// ErrClosed: the Locker is closed.
	ErrClosed = errors.New("locker closed")

	// ErrInvalid: an argument is invalid: a key that is empty or longer than 512 bytes, a result of more than 64 KiB,
	// options, the list of nodes, a nil context or function, a Locker or Lease that this package did not make. The
	// error names every fault, and nothing has changed.
	ErrInvalid = errors.New("invalid argument")
)

// A LossReason says why a lease was lost.
type LossReason string

const (
	LossExpired LossReason = "expired" // no quorum confirmed a renewal in time, or there is no watchdog
	LossTaken   LossReason = "taken"   // a quorum can no longer confirm it: nodes forgot it, or it was taken over
	// LossForgotten: too many nodes lost their memory since they last confirmed the lease in time to tell whether the
	// key was granted to another caller. Only Complete returns it.
	LossForgotten LossReason = "forgotten"
	LossClock     LossReason = "clock"    // this machine's clock stood still: the lease is older than it seems
	LossMaxHold   LossReason = "max_hold" // MaxHold, or Extend, ended it
	LossClosed    LossReason = "closed"   // the Locker was closed
	LossRevoked   LossReason = "revoked"  // an operator ended it: see package admin
)

// A Record is a completion record: the proof that a key is done.
type Record struct {
	Token  uint64 // fencing token of the lease that completed the key
	Result []byte // the result passed to Complete
}

// recordOf returns a copy of a record for the caller, who may change it while requests that carry the record are in
// flight.
func recordOf(r *wire.Record) *Record {
	return &Record{r.Token, slices.Clone(r.Result)}
}

// An OpError describes the failure of an operation, node by node. By [errors.Is] it matches Err, Detail and Ended if
// they are set, and the errors of the nodes.
//
// Err is exactly one of the sentinels of this package, or the error of the caller's context, so it can be compared.
// Detail says more if more is known, such as the cause of the context. If the deadline of that context ended a wait,
// Ended has the context's error, and Err the reason for the wait as far as it was known: a call that waited for a
// holder until its deadline matches ErrHeld and context.DeadlineExceeded, and a call that found no quorum of nodes
// matches ErrUnavailable and context.DeadlineExceeded. If the context was cancelled, the error matches only the error
// of the context: a caller that leaves is no outage. [ClassOf] has the table.
//
// With ErrHeld, RetryAfter is the time until the nodes free the key if its holder vanishes now; it is the same for
// every caller. A holder that renews keeps the key for longer, a holder that releases frees it sooner, and waiters
// may come first. With ErrUnavailable, it is the time until a quorum of nodes votes again, or until a key whose
// release could not be confirmed frees itself. With any other error it is 0.
type OpError struct {
	Op         OpKind
	Key        string        // empty for OpReady
	Err        error         // the sentinel, or the context's error
	Detail     error         // an error that wraps Err and says more; nil = there is none
	Ended      error         // the context's error and cause, if its deadline ended the wait and Err is a sentinel
	Reason     LossReason    // with ErrLost
	RetryAfter time.Duration // see above; 0 = unknown
	Held       HeldKind      // with ErrHeld: what keeps the key from the caller
	Record     *Record       // with ErrDone
	Nodes      []NodeReply   // the reply of each node in the last round
}

// Error returns the text of the error, with the key.
func (e *OpError) Error() string {
	return e.text(strconv.Quote(e.Key))
}

// LogValue returns the text for package slog, with a hash in place of the key, because keys may be secrets of clients.
func (e *OpError) LogValue() slog.Value {
	return slog.StringValue(e.text("key_hash=" + keyHash(e.Key)))
}

// text returns the text of the error, with the key in the given form.
func (e *OpError) text(key string) string {
	var b strings.Builder
	add := func(isSet bool, format string, arg any) {
		if isSet {
			fmt.Fprintf(&b, format, arg)
		}
	}
	showsKind := e.Err == ErrHeld && e.Held != HeldUnknown && e.Detail == nil //nolint:errorlint // the sentinel itself

	add(true, "lockkit: %s", e.Op)
	add(e.Key != "", " %s", key)
	add(showsKind, ": held %v", e.Held)
	add(!showsKind, ": %v", e.mostSpecific())
	add(e.Reason != "", " (%s)", e.Reason)
	add(e.RetryAfter > 0, ", retry after %v", e.RetryAfter.Round(time.Millisecond))
	add(e.Ended != nil, "; given up: %v", e.Ended)

	sep := ": "
	for _, n := range e.Nodes {
		if n.Verdict == VerdictPending {
			continue
		}
		fmt.Fprintf(&b, "%s%v", sep, n)
		sep = "; "
	}
	return b.String()
}

// mostSpecific returns the error that says most about the failure.
func (e *OpError) mostSpecific() error {
	if e.Detail != nil {
		return e.Detail
	}
	return e.Err
}

// Unwrap returns the sentinel or the context's error, and the errors of the nodes. It leaves out errors of nodes that
// look like the end of the caller's context.
func (e *OpError) Unwrap() []error {
	errs := append(make([]error, 0, 2+len(e.Nodes)), e.Err)
	if e.Detail != nil {
		errs = append(errs, e.Detail)
	}
	if e.Ended != nil {
		errs = append(errs, e.Ended)
	}

	for _, n := range e.Nodes {
		// The timeout of a dial is a context.DeadlineExceeded, too, but not of the caller's context.
		if n.Err != nil && !goredis.TimedOut(n.Err) {
			errs = append(errs, n.Err)
		}
	}
	return errs
}

// An OpKind names an operation.
type OpKind uint8

const (
	OpAcquire  OpKind = iota // from the call to the grant or the error, including the wait
	OpHold                   // from the grant to the release, completion or loss
	OpRenew                  // one round of renewal
	OpRelease                // one release
	OpComplete               // one completion
	OpTouch                  // one request to an idle node, or of Ready; only Observer.Node gets it
	OpInspect                // one call of Inspect; only errors name it
	OpReady                  // one call of Ready; only errors name it
	OpRevoke                 // one revocation by package admin; only errors name it
	OpForget                 // one completion record dropped by package admin; only errors name it
)

// String returns the operation's name in lower case.
func (k OpKind) String() string {
	return wordAt(k, "acquire", "hold", "renew", "release", "complete", "touch", "inspect", "ready", "revoke", "forget")
}

// wordAt returns the word at index k, or "unknown".
func wordAt[K ~uint8](k K, words ...string) string {
	if int(k) < len(words) {
		return words[k]
	}
	return "unknown"
}

// A NodeReply is the reply of one node in the last round of an operation.
type NodeReply struct {
	Node    int    // index in the list given to New
	Addr    string // its address, if the client tells it
	Verdict Verdict
	Rest    time.Duration // VerdictHeld, VerdictQuarantined: time left
	Skew    time.Duration // node's wall clock minus this process's, when it answered; within Latency
	Latency time.Duration // from request to answer
	Err     error         // Failed, TimedOut, CircuitOpen: the cause, and the node's earlier failure if known

	// Only for Observer.Node, so that an observer of several Lockers can tell their nodes apart.
	Locker uint64 // a number for the Locker, unique in the process; Lockers derived by With share it
	Of     int    // the number of nodes of the Locker
}

// String describes the reply for a log line.
func (n NodeReply) String() string {
	v := quorum.Vote{
		Reply: wire.Reply{Verdict: wire.Verdict(n.Verdict), Rest: n.Rest},
		Skew:  n.Skew,
		Err:   n.Err,
	}
	return node.Name(n.Node, n.Addr) + ": " + v.Why()
}

var (
	errNoLocker   = fmt.Errorf("lockkit: %w: the Locker was not made by New, Open or With", ErrInvalid)
	errNoLease    = fmt.Errorf("lockkit: %w: the Lease was not made by Acquire", ErrInvalid)
	errNoContext  = fmt.Errorf("lockkit: %w: the context is nil", ErrInvalid)
	errNoFunction = fmt.Errorf("lockkit: %w: the function is nil", ErrInvalid)
)

// checkCall returns errUnmade if the receiver of a call was not made by this package, and errNoContext for a nil
// context.
func checkCall(ctx context.Context, made bool, errUnmade error) error {
	switch {
	case !made:
		return errUnmade
	case ctx == nil:
		return errNoContext
	}
	return nil
}

// newOpError returns the error of an operation that failed with err, which wraps a sentinel or is the error of a
// context.
func newOpError(op OpKind, key string, err error) *OpError {
	e := &OpError{Op: op, Key: key}
	e.setErr(err)
	return e
}

// setErr sets Err to the sentinel or context error that err matches, and Detail to err if it says more.
func (e *OpError) setErr(err error) {
	e.Err = err
	e.Detail = nil
	if slices.Contains(namedErrors, err) {
		return
	}
	for _, named := range namedErrors {
		if errors.Is(err, named) {
			e.Err = named
			e.Detail = err
			return
		}
	}
}

// namedErrors are the possible values of OpError.Err. Those of contexts come first, because the cause of a context
// can be any error.
var namedErrors = []error{
	context.DeadlineExceeded, context.Canceled,
	ErrHeld, ErrDone, ErrUnavailable, ErrLost, ErrReleased, ErrClosed,
}

// contextError returns the error of ctx, with its cause if that says more. It returns nil if ctx has not ended.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	class := ClassOf(cause)
	isOfThisPackage := class != ClassCancelled && class != ClassOther
	switch {
	case err != nil && isOfThisPackage:
		// The cause may be the error of an operation on another key. The error must not match it.
		return fmt.Errorf("%w: %v", err, cause) //nolint:errorlint // only its text
	case !errors.Is(cause, err):
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// A HeldKind says what keeps a key from the caller, as far as the nodes that answered know.
type HeldKind uint8

const (
	HeldUnknown   HeldKind = iota // the error is not ErrHeld, or the kind is unknown
	HeldByOther                   // another holder has it on a quorum of nodes, or in this process
	HeldSplit                     // several callers ask for it, and none is known to have a quorum: try again soon
	HeldRests                     // it has no holder, and stays taken for OpError.RetryAfter (after Cooldown or Revoke)
	HeldByCaller                  // the caller's context runs under a lease on the key
	HeldForWaiter                 // it may be free, but an earlier waiter gets it first
)

// String returns the text that an error has after "held".
func (k HeldKind) String() string {
	return wordAt(
		k,
		"unknown",
		"by another holder",
		"by several that ask for it, none with a quorum",
		"by no holder: the key rests after its last one",
		"by the caller itself",
		"for a waiter that came earlier",
	)
}

// A Verdict classifies the answer of one node to one request.
type Verdict uint8

const (
	VerdictFailed      Verdict = iota // no usable answer; Err says why
	VerdictPending                    // not answered when the outcome was decided without it
	VerdictGranted                    // yes: granted, renewed, released or recorded
	VerdictHealed                     // renewed, after the node had lost its memory or the lease
	VerdictPassed                     // renewed, but others got the key since: a Complete does not count there
	VerdictUnconfirmed                // not counted: promoted recently, and the old primary may still serve
	VerdictHeld                       // another attempt holds the key
	VerdictReserved                   // the key is free, but an earlier waiter gets it first
	VerdictDone                       // a completion record stands
	VerdictGone                       // the lease is not, or no longer, on this node
	VerdictForgotten                  // cannot record a completion: the node may have forgotten a later holder
	VerdictQuarantined                // the node lost its memory, and waits for the end of leases it may have forgotten
	VerdictClockSkewed                // the clocks of node and client differ by more than the clock window
	VerdictTooLate                    // in flight for longer than the clock window, or too late for a cooldown
	VerdictReplica                    // the node is not a master
	VerdictUnguarded                  // the server does not report its replication history
	VerdictTimedOut                   // no answer within the node timeout
	VerdictCircuitOpen                // not asked: the node has not been answering
)

// String returns the verdict in snake_case, fit for a metric attribute.
func (v Verdict) String() string { return wire.Verdict(v).String() }

// replies returns all votes, for errors and observers.
func replies(g *node.Group, t *quorum.Tally) []NodeReply {
	replies := make([]NodeReply, len(t.Votes))
	for i := range t.Votes {
		replies[i] = replyOf(g.Nodes[i], &t.Votes[i])
	}
	return replies
}

// replyOf returns the vote of a node, for errors and observers.
func replyOf(n *node.Node, v *quorum.Vote) NodeReply {
	return NodeReply{
		Node:    n.Index,
		Addr:    n.Addr,
		Verdict: Verdict(v.Verdict),
		Rest:    v.Rest,
		Skew:    v.Skew,
		Latency: v.Latency,
		Err:     v.Err,
	}
}

// A Class says how to react to an error of this package.
type Class uint8

const (
	ClassNone        Class = iota // no error
	ClassInvalid                  // a key, a result or options are invalid: fix the program
	ClassClosed                   // the Locker is closed: this process is ending
	ClassDone                     // the key is recorded as completed: nothing is left to do
	ClassHeld                     // the key is held: skip, or try again
	ClassLost                     // the lease ended before its holder ended it: stop, and check the state of the work
	ClassUnavailable              // no quorum of nodes: alert, try again later
	ClassCancelled                // the caller's context ended, and nothing else is known
	ClassOther                    // an error of another package, such as that of a function given to Do
)

// String returns the class in lower case.
func (c Class) String() string {
	return wordAt(c, "none", "invalid", "closed", "done", "held", "lost", "unavailable", "cancelled", "other")
}

// ClassOf returns the class of err, however it is wrapped. If err matches several classes, the first of these counts:
// lost, done, held, closed, unavailable, invalid, cancelled. So the loss of a lease counts for more than the error of
// its holder, and the state of a key for more than the deadline that ended the wait for it.
func ClassOf(err error) Class {
	for _, c := range classTable {
		if errors.Is(err, c.sentinel) {
			return c.class
		}
	}
	return ClassOther
}

// classTable has the class of each sentinel, in the order in which ClassOf tries them.
var classTable = []struct {
	class    Class
	sentinel error
}{
	{ClassNone, nil},
	{ClassLost, ErrLost},
	{ClassDone, ErrDone},
	{ClassHeld, ErrHeld},
	{ClassClosed, ErrClosed},
	{ClassUnavailable, ErrUnavailable},
	{ClassInvalid, ErrInvalid},
	{ClassInvalid, ErrReleased},
	{ClassCancelled, context.Canceled},
	{ClassCancelled, context.DeadlineExceeded},
}
