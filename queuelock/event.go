package queuelock

import "github.com/lockkit/lockkit/core"

// Kinds of events that [core.Observer.Event] receives, with source "queuelock" and the type of the task as name.
//
// With EventNoKey, the task counts as failed. With EventArchived, asynq archives the task. With EventForeignID, the
// completion of the task is not remembered. EventRefused means that another delivery was granted the lease
// before the handler succeeded, or that the nodes have forgotten the holder of the lease.
const (
	EventDuplicate      core.EventKind = "duplicate_suppressed"  // a completed task was delivered again, and not run
	EventContended      core.EventKind = "contended"             // a key was held; the task was given back
	EventUnavailable    core.EventKind = "unavailable"           // the locks were unavailable; the task was given back
	EventCooldown       core.EventKind = "cooldown"              // a handler returned Cooldown; the task was given back
	EventNoKey          core.EventKind = "no_key"                // a task had no valid key, or a completed one
	EventNilAfterCancel core.EventKind = "nil_after_cancel"      // a handler returned nil after its context had ended
	EventArchived       core.EventKind = "archived_unrun"        // a last attempt had no lease, returned Cooldown or was stale
	EventAbandoned      core.EventKind = "lease_abandoned"       // a handler did not return within the grace period
	EventUnrecorded     core.EventKind = "completion_unrecorded" // a handler succeeded, and the record failed
	EventRefused        core.EventKind = "completion_refused"    // a handler succeeded, and its record was rejected
	EventStale          core.EventKind = "token_stale"           // a store refused a handler's fencing token (core/fence)
	EventForeignID      core.EventKind = "foreign_id"            // the first task of its type with a foreign id
	EventTickMissed     core.EventKind = "tick_missed"           // a Scheduler gave up trying to enqueue a tick
)
