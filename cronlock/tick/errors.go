package tick

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
)

// Why a replica does not run a tick, beside core's sentinels: core.ErrHeld (it runs elsewhere), core.ErrDone (it has run), core.ErrUnavailable (no quorum of nodes),
// core.ErrClosed (the Cron or its Locker is closed).
var (
	// ErrNotLeader: another replica leads, or nobody does. It is that of package leader.
	ErrNotLeader = leader.ErrNotLeader
	// ErrMissed: the tick is over by more than the misfire grace, or, if it had been started, by more than the retention.
	// It is not run any more.
	ErrMissed = errors.New("tick missed")
	// ErrEarly: the tick runs later, in the background: when it is due by the nodes' clocks, which this replica's is ahead of,
	// or after those before it, which are caught up first ([WithCatchUp]).
	ErrEarly = errors.New("tick is not due yet")
	// ErrNotDue: the schedule has had no tick, or the host has called for one that is due only after the clock limit
	// ([WithClockLimit]).
	ErrNotDue = errors.New("no tick is due")
	// ErrClock: this replica's clock is too far from the nodes' clocks. Run NTP.
	ErrClock = errors.New("clock is off")
	// ErrPaused: the job is paused, or was when the tick fell due. It is not run later, either.
	ErrPaused = errors.New("job is paused")
	// ErrOverlap, which matches core.ErrHeld, too: an earlier run of the job goes on, on whatever replica, or somebody
	// else holds its key (WithKey).
	ErrOverlap = fmt.Errorf("%w: an earlier run of the job goes on", core.ErrHeld)
)

// What a run's context may end with, beside core's ErrLost and what the host's context ends with.
var (
	// ErrReplaced: the job's next tick has come, and its policy is Replace.
	ErrReplaced = errors.New("replaced by the next tick")
	// ErrLeadershipLost: the replica does not lead any more. It is leader.ErrLost.
	ErrLeadershipLost = leader.ErrLost
)

// An Error says why a replica did not run a tick. It matches one of the sentinels above or of core, or the error of the
// host's context, if that ended meanwhile.
type Error struct {
	Job  string
	Tick time.Time // zero for a run that no tick has caused
	Err  error     // what happened; where nodes had a say, a *core.OpError is in its chain
}

func (e *Error) Error() string {
	if e.Tick.IsZero() {
		return fmt.Sprintf("cronlock: job %q: %v", e.Job, e.Err)
	}
	return fmt.Sprintf("cronlock: job %q, tick %s: %v", e.Job, stamp(e.Tick), e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// IsExpected reports whether err, as AfterLockError gets it, needs no attention: the tick runs, or has
// run, on another replica, an earlier run goes on, the job is paused, or the scheduler or the Cron was stopped. What is left are
// outages, missed ticks, and clocks that are off.
func IsExpected(err error) bool { return meaningOf(err).expected }

// Kinds of events that [core.Observer.Event] hears, with source "cronlock" and the job as name. Those of elections are
// in package leader.
const (
	EventRun         core.EventKind = "tick_run"         // a tick, or a run that no tick has caused, starts here
	EventRerun       core.EventKind = "tick_rerun"       // it starts for the second time or later, or late for want of a leader
	EventRetried     core.EventKind = "run_retried"      // the function has returned an error, and is called again
	EventHeld        core.EventKind = "tick_held"        // it runs elsewhere
	EventDone        core.EventKind = "tick_done"        // it has run elsewhere
	EventOverlap     core.EventKind = "tick_overlap"     // skipped: an earlier run goes on
	EventPaused      core.EventKind = "tick_paused"      // skipped: the job is paused
	EventMissed      core.EventKind = "tick_missed"      // too late
	EventNotLeader   core.EventKind = "tick_not_leader"  // left to the leader
	EventUnavailable core.EventKind = "tick_unavailable" // no quorum of nodes
	EventUnprotected core.EventKind = "tick_unprotected" // no quorum of nodes, run all the same
	EventRefused     core.EventKind = "tick_refused"     // the clock, or closed
	EventSkipped     core.EventKind = "tick_skipped"     // claimed and given back; the tick is free for other replicas
	EventLost        core.EventKind = "run_lost"         // a run's lease or leadership ended before the run did
	EventReplaced    core.EventKind = "run_replaced"     // a run was told to stop by the next tick
	EventUnrecorded  core.EventKind = "run_unrecorded"   // a run's end could not be recorded
)

// A meaning is what a refusal comes to.
type meaning struct {
	event    core.EventKind // empty: none
	expected bool
}

// errAbandoned: all attempts have been started.
var errAbandoned = fmt.Errorf("%w: no run has completed", core.ErrDone)

// ofOwn is what this package's own errors mean, whatever else they match.
var ofOwn = []struct {
	err error
	meaning
}{
	{ErrPaused, meaning{EventPaused, true}},
	{ErrOverlap, meaning{EventOverlap, true}},
	{ErrEarly, meaning{"", true}},
	{ErrNotLeader, meaning{EventNotLeader, true}},
	{errAbandoned, meaning{EventDone, true}},
	{ErrMissed, meaning{EventMissed, false}},
	{ErrClock, meaning{EventRefused, false}},
}

// ofClass is what all others mean.
var ofClass = map[core.Class]meaning{
	core.ClassDone:        {EventDone, true},
	core.ClassHeld:        {EventHeld, true},
	core.ClassClosed:      {EventRefused, true},
	core.ClassUnavailable: {EventUnavailable, false},
	core.ClassLost:        {EventRefused, false},
	core.ClassInvalid:     {EventRefused, false},
	core.ClassOther:       {EventRefused, false},
	core.ClassCancelled:   {"", true}, // the scheduler has stopped the job
}

func meaningOf(err error) meaning {
	for _, of := range ofOwn {
		if errors.Is(err, of.err) {
			return of.meaning
		}
	}
	return ofClass[core.ClassOf(err)]
}

// explain adds to an error of core what an operator of cron jobs wants to know first.
func explain(err error) error {
	var op *core.OpError
	if !errors.As(err, &op) {
		return err
	}
	if op.Record != nil && errors.Is(err, core.ErrDone) {
		if r, ok := parseRecord(op.Record.Result); ok {
			return fmt.Errorf("%s: %w", r, err)
		}
	}
	if errors.Is(err, core.ErrUnavailable) && forClock(op) {
		return fmt.Errorf("%w: %w", ErrClock, err)
	}
	return err
}

// forClock reports whether most nodes that answered refused because of the clock.
func forClock(op *core.OpError) bool {
	skewed, answered := 0, 0
	for _, n := range op.Nodes {
		switch n.Verdict {
		case core.VerdictClockSkewed:
			skewed++
			answered++
		case core.VerdictFailed, core.VerdictPending, core.VerdictTimedOut:
		default:
			answered++
		}
	}
	return 2*skewed > answered
}

// outage reports whether the nodes cannot be reached: that they refuse this replica for its clock is none.
func outage(err error) bool {
	err = explain(err)
	return errors.Is(err, core.ErrUnavailable) && !errors.Is(err, ErrClock)
}
