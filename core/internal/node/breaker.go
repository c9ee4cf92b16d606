package node

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
)

// MaxFailures is the number of requests in a row that may fail before a node is left alone for a while.
const MaxFailures = 3

// failuresFade is the time after the last failure from which failures no longer count. This process does not know
// whether the server is still in trouble then. If the next request were a probe, the requests that begin beside it
// would be refused although the server may have been well for long.
const failuresFade = RecheckEvery

// A breaker spares a server requests while it is in trouble. The server is a node, or the master of a Cluster's
// shard. Trouble of one shard does not affect the others. The mutex of the Node guards all fields.
type breaker struct {
	slots *slotPool

	inFlight        int
	unansweredSince clock.Instant // when the first request after the last answer was sent; Never if there is none
	failures        int           // in a row
	failedAt        clock.Instant // when the last of them ended
	probeAt         clock.Instant // while the server is in trouble: when the next request may pass, as a probe
	cause           error         // the last failure, except that a timeout does not replace a more specific error
}

// isTroubled reports whether the latest requests failed in a row, or one has been unanswered for longer than the timeout.
func (b *breaker) isTroubled(now clock.Instant, timeout time.Duration) bool {
	silent := b.inFlight > 0 && now.Since(b.unansweredSince) > timeout
	failing := b.failures >= MaxFailures && now.Since(b.failedAt) < failuresFade
	return silent || failing
}

// begin records that a request is on its way.
func (b *breaker) begin(now clock.Instant) {
	if b.inFlight == 0 {
		b.unansweredSince = clock.Never
	}
	b.unansweredSince = min(b.unansweredSince, now)
	b.inFlight++
}

// end records the end of a request. An error that is not the server's fault, such as an exhausted pool, does not
// count.
func (b *breaker) end(now clock.Instant, err error) {
	b.inFlight--
	switch {
	case goredis.Answered(err):
		b.unansweredSince = clock.Never
		b.failures = 0
		b.cause = nil
	case !goredis.NotSent(err):
		b.failures++
		b.failedAt = now
		if b.cause == nil || !goredis.TimedOut(err) {
			b.cause = err
		}
	}
}

// withCause adds to err the reason why the server does not answer, if it is known.
func (b *breaker) withCause(err error) error {
	switch {
	case b.cause == nil:
		return err
	case goredis.TimedOut(b.cause):
		// Wrapped, the cause would match the end of the caller's context.
		return fmt.Errorf("%w: %v", err, b.cause) //nolint:errorlint // its text only
	}
	return fmt.Errorf("%w: %w", err, b.cause)
}
