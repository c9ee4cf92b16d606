package otellock

import (
	"cmp"
	"context"
	"errors"

	"github.com/lockkit/lockkit/core"
)

// An ending is how an operation ended, as metrics tell it.
type ending struct {
	outcome string
	failure string // error.type; empty where nothing failed. That somebody else holds a key is no failure
}

// What an operation can end with, all kinds together. Every pair of outcome and failure is here, so that
// their attributes are made once.
var (
	acquired    = ending{outcome: "acquired"}
	held        = ending{outcome: "held"}     // somebody else has the key, and the caller would not wait
	timeout     = ending{outcome: "timeout"}  // he would, and has for as long as he may
	canceled    = ending{outcome: "canceled"} // the caller went away
	done        = ending{outcome: "done"}
	closed      = ending{outcome: "closed"}
	unavailable = ending{"unavailable", "unavailable"}
	failed      = ending{"error", "_OTHER"}
	released    = ending{outcome: "released"}
	abandoned   = ending{outcome: "abandoned"} // never released; the context had ended before the lease did
	renewed     = ending{outcome: "renewed"}
	completed   = ending{outcome: "completed"}
	forgotten   = lost(core.LossForgotten) // only of completions: the lease itself was not lost

	endings = []ending{acquired, held, timeout, canceled, done, closed, unavailable, failed, released, abandoned, renewed, completed, forgotten,
		lost(core.LossExpired), lost(core.LossTaken), lost(core.LossClock), lost(core.LossMaxHold), lost(core.LossClosed)}
)

// lost is the loss of a lease. Its error.type is the reason.
func lost(reason core.LossReason) ending { return ending{"lost", string(reason)} }

// description is what the status of a span says. Errors of core name the key, so they stay unsaid.
func (e ending) description() string {
	switch e.outcome {
	case "unavailable":
		return core.ErrUnavailable.Error()
	case "lost":
		return core.ErrLost.Error() + ": " + e.failure
	}
	return "unexpected error"
}

// endingOf classifies an outcome. ctx is that of the operation.
func endingOf(ctx context.Context, op core.Op, out core.Outcome) ending {
	err, reason := out.Err, out.Reason
	if e, ok := err.(*core.OpError); ok {
		err, reason = e.Err, cmp.Or(reason, e.Reason) // the sentinel or the context's error; the rest is what nodes said
	}
	switch {
	case err == nil:
		return [...]ending{core.OpAcquire: acquired, core.OpHold: released, core.OpRenew: renewed, core.OpRelease: released, core.OpComplete: completed}[op.Kind]
	case errors.Is(err, core.ErrReleased):
		return released
	case errors.Is(err, core.ErrLost):
		if op.Kind == core.OpHold && reason == core.LossExpired && ctx.Err() != nil {
			return abandoned
		}
		return lost(cmp.Or(reason, core.LossTaken))
	case errors.Is(err, core.ErrHeld) && op.Try:
		return held
	case errors.Is(err, core.ErrHeld), errors.Is(err, context.DeadlineExceeded):
		return timeout
	case errors.Is(err, context.Canceled):
		return canceled
	case errors.Is(err, core.ErrDone):
		return done
	case errors.Is(err, core.ErrUnavailable):
		return unavailable
	case errors.Is(err, core.ErrClosed):
		return closed
	}
	return failed
}
