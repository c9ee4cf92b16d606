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
)

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
	OpCheck                  // one check of a fencing token by package fence; only errors name it
	OpOnce                   // one record of package fence; only errors name it, with the identity of the work as the key
)

// String returns the operation's name in lower case.
func (k OpKind) String() string {
	return wordAt(k, "acquire", "hold", "renew", "release", "complete", "touch", "inspect", "ready", "revoke", "forget", "check", "once")
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
	HeldCooldown                  // it has no holder, and stays taken for OpError.RetryAfter (after Cooldown or Revoke)
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
