package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// The sentinels of package fence, which documents them.
var (
	ErrStale  = errors.New("stale fencing token")
	ErrTooOld = errors.New("fencing token too old")
)

// Invalid returns an error that matches core.ErrInvalid.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("fence: %w: %w", core.ErrInvalid, fmt.Errorf(format, args...))
}

// ErrNoContext is the error of a call without a context.
var ErrNoContext = Invalid("the context is nil")

var (
	errNoLease = Invalid("the context has no lease: " +
		"call it with the context of core.Locker.Do, or of an adapter's handler")
	errPermit = Invalid("the context runs under a permit of a semaphore, whose token compares only with those of the " +
		"same slot: take the permit that semaphore.FromContext returns, and call CheckPermit, or RunPermit of redisfence")
)

// Stale returns the error of a holder that a store has refused, because it has seen a greater token.
func (h Holder) Stale(seen int64) error {
	return h.StaleFor(fmt.Sprintf("the store has seen token %d, this lease has %d", seen, h.Token))
}

// StaleFor returns the error of a stale holder, with the given reason.
func (h Holder) StaleFor(reason string) error {
	return &core.OpError{
		Op:     core.OpCheck,
		Key:    h.Key,
		Err:    core.ErrLost,
		Detail: fmt.Errorf("%w: %w: %s", core.ErrLost, ErrStale, reason),
		Reason: core.LossStale,
	}
}

// TooOld returns the error of a holder with an old token, on a key that the store does not know.
func (h Holder) TooOld() error {
	return fmt.Errorf("fence: check %q: %w: the store remembers nothing of the key, and token %d is older than %v: "+
		"release the lease, and acquire it again", h.Key, ErrTooOld, h.Token, MaxSilence)
}

// Explain returns the error of a step that has failed, with advice. If the context has ended, the error says so, too,
// even if the driver has another error for it. If the context ended because its lease was lost, the error is a loss.
func Explain(ctx context.Context, step string, err error, advice string) error {
	loss := context.Cause(ctx)

	if errors.Is(loss, core.ErrLost) {
		return fmt.Errorf("fence: %s: %w: %w%s", step, loss, err, advice)
	}

	end := ctx.Err()
	switch {
	case end == nil, errors.Is(err, end):
		return fmt.Errorf("fence: %s: %w%s", step, err, advice)
	}
	return fmt.Errorf("fence: %s: %w: %w%s", step, end, err, advice)
}
