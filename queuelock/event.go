package queuelock

import "github.com/lockkit/lockkit/core"

// Kinds of the events that observers of the Locker hear ([core.Observer.Event]), with source "queuelock" and
// the type of the task as name.
const (
	// EventDuplicate: a completed task was delivered again, and not run.
	EventDuplicate core.EventKind = "duplicate_suppressed"
	// EventContended: a key was held; the task was given back, to be delivered again.
	EventContended core.EventKind = "contended"
	// EventUnavailable: the locks were out of reach; the task was given back, to be delivered again.
	EventUnavailable core.EventKind = "unavailable"
	// EventSkipped: a key was held; the task was dropped (Skip).
	EventSkipped core.EventKind = "skipped"
	// EventCooldown: a handler returned Cooldown; the task was given back, to be delivered again.
	EventCooldown core.EventKind = "cooldown"
	// EventUnfit: no key could be made of the task, which counts as failed.
	EventUnfit core.EventKind = "unfit"
	// EventNilAfterCancel: a handler returned nil after its context had ended.
	EventNilAfterCancel core.EventKind = "nil_after_cancel"
	// EventArchived: a last attempt could not be run before its deadline; asynq archives it.
	EventArchived core.EventKind = "archived_unrun"
	// EventAbandoned: a handler did not return within the grace; its leases run out within the TTL.
	EventAbandoned core.EventKind = "lease_abandoned"
	// EventUnrecorded: a handler succeeded and its completion could not be recorded.
	EventUnrecorded core.EventKind = "completion_unrecorded"
	// EventRefused: a handler succeeded after its lease was lost to another delivery.
	EventRefused core.EventKind = "completion_refused"
	// EventUnstamped: the first task of its type has an id that may be used again, and no stamp.
	EventUnstamped core.EventKind = "unstamped"
	// EventTickEnqueued: this replica's Scheduler has enqueued a tick.
	EventTickEnqueued core.EventKind = "tick_enqueued"
	// EventTickMissed: a Scheduler has given up a tick that no replica is known to have enqueued.
	EventTickMissed core.EventKind = "tick_missed"
)
