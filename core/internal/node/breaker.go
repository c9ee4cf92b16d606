package node

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
)

// MaxFailures is how many requests in a row may fail before a node is left alone for a while.
const MaxFailures = 3

// A breaker spares requests to a server while it is in trouble: to a node, or to the master of a Cluster's shard. The trouble of
// one shard is none of the others'.
type breaker struct {
	slots *slots

	inFlight int
	since    clock.Instant // when something was sent first since it last answered; never = nothing was
	failures int           // in a row
	probeAt  clock.Instant // while open: when the next request may pass, as a probe
	cause    error         // why it does not answer: the last error that tells more than that time was up
}

// troubled reports whether requests fail in a row, or one has been unanswered for longer than the timeout.
func (b *breaker) troubled(now clock.Instant, timeout time.Duration) bool {
	silent := b.inFlight > 0 && now.Since(b.since) > timeout
	return silent || b.failures >= MaxFailures
}

func (b *breaker) enter(now clock.Instant) {
	if b.inFlight == 0 {
		b.since = clock.Never
	}
	b.since = min(b.since, now)
	b.inFlight++
}

// leave books the end of a request.
func (b *breaker) leave(err error) {
	b.inFlight--
	switch {
	case goredis.Answered(err):
		b.since = clock.Never
		b.failures = 0
		b.cause = nil
	case !goredis.Unsent(err):
		b.failures++
		if b.cause == nil || !goredis.TimedOut(err) {
			b.cause = err
		}
	}
}

// because adds to err why there is no answer, where that is known.
func (b *breaker) because(err error) error {
	switch {
	case b.cause == nil:
		return err
	case goredis.TimedOut(b.cause): // which must not be taken for the end of the caller's time
		return fmt.Errorf("%w: %v", err, b.cause) //nolint:errorlint // its text only
	}
	return fmt.Errorf("%w: %w", err, b.cause)
}
