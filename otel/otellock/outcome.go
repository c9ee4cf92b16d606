package otellock

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockkit/lockkit/core"
)

// outcomeLabels are the labels for how an operation ended.
type outcomeLabels struct {
	outcome   string // AttrOutcome
	errorType string // AttrErrorType; empty if the operation did not fail. A key held by another caller is no failure.
}

var (
	outcomeAcquired    = outcomeLabels{outcome: "acquired"}
	outcomeHeld        = outcomeLabels{outcome: "held"}     // another caller has the key, and this one does not wait
	outcomeTimeout     = outcomeLabels{outcome: "timeout"}  // the time to wait, or the deadline, is over
	outcomeCanceled    = outcomeLabels{outcome: "canceled"} // the caller's context was canceled
	outcomeDone        = outcomeLabels{outcome: "done"}
	outcomeClosed      = outcomeLabels{outcome: "closed"}
	outcomeUnavailable = outcomeLabels{"unavailable", "unavailable"}
	outcomeFailed      = outcomeLabels{"error", "_OTHER"}
	outcomeReleased    = outcomeLabels{outcome: "released"}
	outcomeAbandoned   = outcomeLabels{outcome: "abandoned"} // never released; the context had ended before the lease did
	outcomeRenewed     = outcomeLabels{outcome: "renewed"}
	outcomeCompleted   = outcomeLabels{outcome: "completed"}
)

// lossReasons are the reasons for which a lease is lost. core.LossForgotten and core.LossStale are not among them: only
// a completion reports the first, and only package fence the second.
var lossReasons = []core.LossReason{
	core.LossExpired, core.LossTaken, core.LossClock, core.LossMaxHold, core.LossRevoked, core.LossClosed,
}

// outcomeLost returns the labels of a lost lease. The reason is the error type.
func outcomeLost(reason core.LossReason) outcomeLabels { return outcomeLabels{"lost", string(reason)} }

// description returns the text for the status of a span. It leaves out the text of the error, because errors of core
// name the key.
func (l outcomeLabels) description() string {
	switch l.outcome {
	case "unavailable":
		return core.ErrUnavailable.Error()
	case "lost":
		return core.ErrLost.Error() + ": " + valid(l.errorType)
	}
	return "unexpected error"
}

func (l outcomeLabels) attrs() []attribute.KeyValue {
	attrs := []attribute.KeyValue{AttrOutcome.String(l.outcome)}
	if l.errorType != "" {
		attrs = append(attrs, AttrErrorType.String(l.errorType))
	}
	return attrs
}

// outcomeOf returns the labels of an operation that ended with out. ctx is the context of the operation, and success is
// returned if the operation succeeded.
func outcomeOf(ctx context.Context, op core.Op, out core.Outcome, success outcomeLabels) outcomeLabels {
	switch core.ClassOf(out.Err) {
	case core.ClassNone:
		return success
	case core.ClassLost:
		reason := out.Reason
		if e, ok := errors.AsType[*core.OpError](out.Err); ok {
			reason = cmp.Or(reason, e.Reason)
		}
		// If the lease ran out after the end of its caller's context, no holder was at work under it.
		isAbandoned := op.Kind == core.OpHold && reason == core.LossExpired && ctx.Err() != nil
		if isAbandoned {
			return outcomeAbandoned
		}
		return outcomeLost(cmp.Or(reason, core.LossTaken))
	case core.ClassHeld:
		if op.Try {
			return outcomeHeld
		}
		return outcomeTimeout // the caller has waited
	case core.ClassDone:
		return outcomeDone
	case core.ClassClosed:
		return outcomeClosed
	case core.ClassUnavailable:
		return outcomeUnavailable
	case core.ClassCancelled:
		if errors.Is(out.Err, context.DeadlineExceeded) {
			return outcomeTimeout
		}
		return outcomeCanceled
	default:
		// A hold ends with ErrReleased after Release or Complete. Its class is ClassInvalid.
		if errors.Is(out.Err, core.ErrReleased) {
			return outcomeReleased
		}
		return outcomeFailed
	}
}
