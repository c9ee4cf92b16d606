package queuelock

// A state is how far a delivery has come: what it waits for, or how it has ended.
type state uint8

const (
	trying      state = iota // it asks for a lease
	waiting                  // it waits for a held key, on a waiting place of its server
	stranded                 // it waits for locks that are out of reach
	persisting               // on its task's last attempt, it waits for either
	parked                   // on its task's last attempt, its context has ended: asynq would archive the task if it were told now
	running                  // its handler runs
	overstaying              // its handler runs, although its context has ended
	settling                 // its handler has returned nil or asynq.RevokeTask, which is to be recorded

	// The ends, by what asynq is told.
	duplicated  // nil: the task is on record as completed
	contended   // not run, and no failure: a key is held
	unavailable // not run, and no failure: the locks are out of reach
	cooled      // no failure: the handler returned Cooldown
	archived    // asynq archives the task, whatever it is told
	unfit       // a failure: nothing can be locked for the task as it is
	given       // not run, and no failure: the context has ended. If asynq ended it, it has taken the task back, and hears nothing
	finished    // what the handler returned
	refused     // a failure: another delivery was granted the lease of the identity, or too many nodes forgot it
	states
)

// A happening is what changes the state of a delivery.
type happening uint8

const (
	granted      happening = iota // the lease is granted; running comes after the last of them, for another one begins anew
	held                          // the key is held, and there is a waiting place
	crowded                       // the key is held, and there is none, or the key rests
	unreachable                   // no quorum answers
	closed                        // the Locker is closed
	late                          // there is no lease, and a last attempt may not wait any longer
	lost                          // the lease taken before was lost meanwhile
	completed                     // the task is on record as completed
	wrong                         // the request can never be granted
	ended                         // the task's context ends
	succeeded                     // the handler returns nil or asynq.RevokeTask
	failed                        // the handler returns another error, or panics
	asksForRest                   // the handler returns Cooldown
	cooledAtLast                  // … on the last attempt
	recorded                      // the completion is recorded, or nobody can tell
	rejected                      // the nodes reject the completion
	happenings
)

// impossible is where nothing of the kind can happen.
const impossible = states

// life is the life of a delivery: what follows from each state that is no end by all that can happen to it.
var life = [happenings][duplicated]state{
	//           trying       waiting      stranded     persisting   parked       running      overstaying  settling
	granted:      {running, running, running, running, impossible, impossible, impossible, impossible},
	held:         {waiting, contended, contended, persisting, impossible, impossible, impossible, impossible},
	crowded:      {contended, impossible, impossible, impossible, impossible, impossible, impossible, impossible},
	unreachable:  {stranded, unavailable, unavailable, persisting, impossible, impossible, impossible, impossible},
	closed:       {unavailable, unavailable, unavailable, persisting, given, impossible, impossible, impossible},
	late:         {impossible, impossible, impossible, archived, archived, impossible, impossible, impossible},
	lost:         {unavailable, unavailable, unavailable, persisting, impossible, running, overstaying, settling},
	completed:    {duplicated, duplicated, duplicated, duplicated, impossible, impossible, impossible, impossible},
	wrong:        {unfit, unfit, unfit, unfit, impossible, impossible, impossible, impossible},
	ended:        {given, given, given, parked, given, overstaying, overstaying, settling},
	succeeded:    {impossible, impossible, impossible, impossible, impossible, settling, settling, impossible},
	failed:       {impossible, impossible, impossible, impossible, impossible, finished, finished, impossible},
	asksForRest:  {impossible, impossible, impossible, impossible, impossible, cooled, cooled, impossible},
	cooledAtLast: {impossible, impossible, impossible, impossible, impossible, archived, archived, impossible},
	recorded:     {impossible, impossible, impossible, impossible, impossible, impossible, impossible, finished},
	rejected:     {impossible, impossible, impossible, impossible, impossible, impossible, impossible, refused},
}

// waits reports whether a delivery in this state asks for its lease once more.
func (s state) waits() bool { return s == waiting || s == stranded || s == persisting }
