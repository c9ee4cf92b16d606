package otellock

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockkit/lockkit/core"
)

// An ending is how an operation ended, as metrics tell it.
type ending struct {
	outcome string
	failure string // error.type; empty where nothing failed. That somebody else holds a key is no failure
}

var (
	acquired    = ending{outcome: "acquired"}
	held        = ending{outcome: "held"}     // somebody else has the key, and the caller does not wait
	timeout     = ending{outcome: "timeout"}  // the caller waited for as long as it may
	canceled    = ending{outcome: "canceled"} // the caller went away
	done        = ending{outcome: "done"}
	closed      = ending{outcome: "closed"}
	unavailable = ending{"unavailable", "unavailable"}
	failed      = ending{"error", "_OTHER"}
	released    = ending{outcome: "released"}
	abandoned   = ending{outcome: "abandoned"} // never released; the context had ended before the lease did
	renewed     = ending{outcome: "renewed"}
	completed   = ending{outcome: "completed"}
)

// lossReasons are the reasons for which leases are lost. LossForgotten is one of completions alone.
var lossReasons = []core.LossReason{
	core.LossExpired, core.LossTaken, core.LossClock, core.LossMaxHold, core.LossRevoked, core.LossClosed,
}

// lost is the loss of a lease. Its error.type is the reason.
func lost(reason core.LossReason) ending { return ending{"lost", string(reason)} }

// description is what the status of a span says. Errors of core name the key, so they stay unsaid.
func (e ending) description() string {
	switch e.outcome {
	case "unavailable":
		return core.ErrUnavailable.Error()
	case "lost":
		return core.ErrLost.Error() + ": " + valid(e.failure)
	}
	return "unexpected error"
}

func (e ending) attrs() []attribute.KeyValue {
	attrs := []attribute.KeyValue{AttrOutcome.String(e.outcome)}
	if e.failure != "" {
		attrs = append(attrs, AttrErrorType.String(e.failure))
	}
	return attrs
}

// endingOf classifies an outcome; ok is that of a success. ctx is that of the operation.
func endingOf(ctx context.Context, op core.Op, out core.Outcome, ok ending) ending {
	switch core.ClassOf(out.Err) {
	case core.ClassNone:
		return ok
	case core.ClassLost:
		reason := out.Reason
		if e, ok := errors.AsType[*core.OpError](out.Err); ok {
			reason = cmp.Or(reason, e.Reason)
		}
		if op.Kind == core.OpHold && reason == core.LossExpired && ctx.Err() != nil {
			return abandoned
		}
		return lost(cmp.Or(reason, core.LossTaken))
	case core.ClassHeld:
		if op.Try {
			return held
		}
		return timeout
	case core.ClassDone:
		return done
	case core.ClassClosed:
		return closed
	case core.ClassUnavailable:
		return unavailable
	case core.ClassCancelled:
		if errors.Is(out.Err, context.DeadlineExceeded) {
			return timeout
		}
		return canceled
	default:
		if errors.Is(out.Err, core.ErrReleased) {
			return released
		}
		return failed
	}
}
