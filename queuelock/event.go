package queuelock

// Kinds of the events that observers of the Locker hear ([core.Observer.Event]), with source "queuelock" and
// the type of the task as name.
const (
	// EventDuplicate: a completed task was delivered again, and not run.
	EventDuplicate = "duplicate_suppressed"
	// EventContended: a key was held; the task was given back, to be delivered again.
	EventContended = "contended"
	// EventUnavailable: the locks were out of reach; the task was given back, to be delivered again.
	EventUnavailable = "unavailable"
	// EventArchived: a last attempt could not be run before its deadline; asynq archives it.
	EventArchived = "archived_unrun"
	// EventAbandoned: a handler did not return within the grace; its leases run out within the TTL.
	EventAbandoned = "lease_abandoned"
	// EventUnrecorded: a handler succeeded and its completion could not be recorded.
	EventUnrecorded = "completion_unrecorded"
	// EventRefused: a handler succeeded after its lease was lost to another delivery.
	EventRefused = "completion_refused"
)
