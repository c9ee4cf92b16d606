package cronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
)

// Reasons for which nothing starts, beside core.ErrHeld (the job runs elsewhere), core.ErrDone (the latest tick was
// started), core.ErrUnavailable (no quorum of nodes answered, or they refuse this replica for its clock),
// core.ErrClosed, and leader.ErrNotLeader.
var (
	// ErrMissed means that the latest tick was not started, and that it is older than the grace.
	ErrMissed = errors.New("tick missed")
	// ErrNotDue means that no tick of the schedule has been due. If the job was never started, a tick from before this
	// process's Add that is older than the grace does not count.
	ErrNotDue = errors.New("no tick is due")
)

// An Error is the error of a replica that did not start a run of a job. It wraps the reason.
type Error struct {
	Job  string
	Tick time.Time // zero if no tick was found, and for a run by hand
	Err  error
}

func (e *Error) Error() string {
	if e.Tick.IsZero() {
		return fmt.Sprintf("cronlock: job %q: %v", e.Job, e.Err)
	}
	return fmt.Sprintf("cronlock: job %q, tick %s: %v", e.Job, stamp(e.Tick), e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// IsExpected reports whether an error of RunDue or RunNow needs no attention: the run is left to another replica,
// or this one is shutting down. Of the errors that the function itself returns, only context.Canceled is expected.
func IsExpected(err error) bool {
	_, refused := errors.AsType[*Error](err)
	_, expected := classify(err)
	return expected && (refused || errors.Is(err, context.Canceled))
}

// Kinds of events that [core.Observer.Event] receives, with source "cronlock" and the job as name. Package leader has
// the events of elections.
const (
	EventRun         core.EventKind = "tick_run"         // a run starts on this process, of a tick or by hand
	EventRerun       core.EventKind = "tick_rerun"       // it is not the first start of its tick
	EventSuperseded  core.EventKind = "tick_superseded"  // once per tick that was not started before this later one
	EventHeld        core.EventKind = "tick_held"        // the job runs elsewhere
	EventDone        core.EventKind = "tick_done"        // the tick was started elsewhere
	EventMissed      core.EventKind = "tick_missed"      // the tick was not started within the grace
	EventNotLeader   core.EventKind = "tick_not_leader"  // another process leads, or none
	EventUnavailable core.EventKind = "tick_unavailable" // no quorum answered; not while new nodes do not vote yet
	EventRefused     core.EventKind = "tick_refused"     // for another reason, such as Close
	EventLost        core.EventKind = "run_lost"         // the lease or leadership ended before the run, or a store refused its token
	EventUnrecorded  core.EventKind = "run_unrecorded"   // the end was not recorded: the tick may be started again
)

// classify returns the event that reports err, and whether err needs no attention. It tests for the reasons of this
// package first, because an error may match one of them and one of core's.
func classify(err error) (event core.EventKind, expected bool) {
	switch class := core.ClassOf(err); {
	case errors.Is(err, leader.ErrNotLeader):
		return EventNotLeader, true
	case errors.Is(err, ErrMissed):
		return EventMissed, false
	case errors.Is(err, ErrNotDue), class == core.ClassCancelled:
		return "", true
	case class == core.ClassDone:
		return EventDone, true
	case class == core.ClassHeld:
		return EventHeld, true
	case class == core.ClassUnavailable:
		return EventUnavailable, false
	default:
		return EventRefused, class == core.ClassClosed
	}
}
