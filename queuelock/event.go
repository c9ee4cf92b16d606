package queuelock

import "github.com/lockkit/lockkit/core"

// Kinds of events that [core.Observer.Event] receives, with source "queuelock" and the type of the task as name.
const (
	EventDuplicate      core.EventKind = "duplicate_suppressed"  // a completed task was delivered again, and not run
	EventContended      core.EventKind = "contended"             // a key was held; the task was given back
	EventUnavailable    core.EventKind = "unavailable"           // the locks were unavailable; the task was given back
	EventCooldown       core.EventKind = "cooldown"              // a handler returned Cooldown; the task was given back
	EventNoKey          core.EventKind = "no_key"                // a task has no valid key, or a completed one; it counts as failed
	EventNilAfterCancel core.EventKind = "nil_after_cancel"      // a handler returned nil after its context had ended
	EventArchived       core.EventKind = "archived_unrun"        // a last attempt had no lease, or returned Cooldown: archived
	EventAbandoned      core.EventKind = "lease_abandoned"       // a handler did not return within the grace period
	EventUnrecorded     core.EventKind = "completion_unrecorded" // a handler succeeded and its completion could not be recorded
	EventRefused        core.EventKind = "completion_refused"    // a handler succeeded, and the nodes rejected the record
	EventForeignID      core.EventKind = "foreign_id"            // the first task of its type whose completions are not remembered
	EventTickMissed     core.EventKind = "tick_missed"           // a Scheduler gave up trying to enqueue a tick
)
