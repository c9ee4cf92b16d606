package queuelock

// A state is the progress of a delivery: the thing that it waits for, or how it has ended.
type state uint8

const (
	trying      state = iota // it requests a lease
	waiting                  // it waits for a held key, on a waiting place of its server
	stranded                 // it waits for lock nodes that are out of reach
	persisting               // it waits for either, on its task's last attempt
	parked                   // its context has ended on the last attempt: with a result, asynq would archive the task
	running                  // its handler runs
	overstaying              // its handler runs, although its context has ended
	recording                // its handler has returned nil or asynq.RevokeTask, which must be recorded

	// The final states, with the result for asynq.
	duplicate   // nil: the task is on record as completed
	contended   // not run, and no failure: a key is held
	unavailable // not run, and no failure: the lock nodes are out of reach
	coolingDown // no failure: the handler returned Cooldown
	stale       // no failure: a store has seen a greater fencing token than the handler's
	archived    // asynq archives the task, whatever the result
	keyInvalid  // a failure: nothing can be locked for the task as it is
	cancelled   // not run, and no failure: the context has ended. If asynq ended it, asynq ignores the result
	finished    // the result of the handler
	rejected    // a failure: another delivery was granted the lease of the identity, or too many nodes forgot it
	stateCount
)

// A trigger changes the state of a delivery.
type trigger uint8

const (
	onGranted      trigger = iota // a lease is granted; after it the next is requested, or the handler runs
	onHeld                        // the key is held, and there is a waiting place
	onNoPlace                     // the key is held, and there is no waiting place, or the key is in a cooldown
	onUnreachable                 // no quorum of nodes answers
	onClosed                      // the Locker is closed
	onTimeUp                      // there is no lease, and a last attempt must not wait any longer
	onLeaseLost                   // an earlier lease of the delivery was lost during the request
	onCompleted                   // the task is on record as completed
	onKeyInvalid                  // the request can never be granted
	onContextEnd                  // the task's context ends
	onSuccess                     // the handler returns nil or asynq.RevokeTask
	onFailure                     // the handler returns another error, or panics
	onCooldown                    // the handler returns Cooldown
	onLastCooldown                // the handler returns Cooldown on the last attempt
	onStale                       // the handler returns the error of a store that has refused its fencing token
	onLastStale                   // the handler returns that on the last attempt
	onRecorded                    // the completion is recorded, or it is unknown whether it is
	onRejected                    // the nodes reject the completion
	triggerCount
)

// impossible is the entry of transitions for a trigger that cannot occur in a state.
const impossible = stateCount

// transitions is the next state of a delivery, for each trigger in each state that is not final.
var transitions = [triggerCount][duplicate]state{
	//             trying       waiting      stranded     persisting   parked      running      overstaying  recording
	onGranted:      {running, running, running, running, impossible, impossible, impossible, impossible},
	onHeld:         {waiting, contended, contended, persisting, impossible, impossible, impossible, impossible},
	onNoPlace:      {contended, impossible, impossible, impossible, impossible, impossible, impossible, impossible},
	onUnreachable:  {stranded, unavailable, unavailable, persisting, impossible, impossible, impossible, impossible},
	onClosed:       {unavailable, unavailable, unavailable, persisting, cancelled, impossible, impossible, impossible},
	onTimeUp:       {impossible, impossible, impossible, archived, archived, impossible, impossible, impossible},
	onLeaseLost:    {unavailable, unavailable, unavailable, persisting, impossible, running, overstaying, recording},
	onCompleted:    {duplicate, duplicate, duplicate, duplicate, impossible, impossible, impossible, impossible},
	onKeyInvalid:   {keyInvalid, keyInvalid, keyInvalid, keyInvalid, impossible, impossible, impossible, impossible},
	onContextEnd:   {cancelled, cancelled, cancelled, parked, cancelled, overstaying, overstaying, recording},
	onSuccess:      {impossible, impossible, impossible, impossible, impossible, recording, recording, impossible},
	onFailure:      {impossible, impossible, impossible, impossible, impossible, finished, finished, impossible},
	onCooldown:     {impossible, impossible, impossible, impossible, impossible, coolingDown, coolingDown, impossible},
	onLastCooldown: {impossible, impossible, impossible, impossible, impossible, archived, archived, impossible},
	onStale:        {impossible, impossible, impossible, impossible, impossible, stale, stale, impossible},
	onLastStale:    {impossible, impossible, impossible, impossible, impossible, archived, archived, impossible},
	onRecorded:     {impossible, impossible, impossible, impossible, impossible, impossible, impossible, finished},
	onRejected:     {impossible, impossible, impossible, impossible, impossible, impossible, impossible, rejected},
}

// isWaiting reports whether a delivery in this state requests its lease once more.
func (s state) isWaiting() bool { return s == waiting || s == stranded || s == persisting }
