package cronlock

// A state is the state of a tick. It is not stored on the nodes: it follows from the records of the tick's starts and
// of its end, and from the holder of the job's lease.
type state int

const (
	tickFree      state = iota // due, not started, and no replica is about to start it
	tickClaimed                // a replica holds the job's lease to start it for the first time
	tickRunning                // a start is recorded, and its replica holds the job's lease
	tickOrphaned               // a start is recorded and no end, no replica holds the job's lease, and starts are left
	tickReclaimed              // a replica holds the job's lease to start it again
	tickOver                   // it will not be started again
	stateCount
)

// A transition is an event that changes the state of a tick.
type transition int

const (
	onClaim        transition = iota // a replica acquires the job's lease to start the tick
	onStart                          // a quorum records the start
	onRelease                        // the claim ends without a call of the function
	onCompletion                     // the function returns nil, or an error while its context is live
	onInterruption                   // the function panics, or returns an error after it was told to stop
	onDeath                          // the replica dies, or loses the lease
	transitionCount
)

// impossible marks a transition that cannot happen in a state.
const impossible = stateCount

// transitions has the next state for each transition and state, for a tick that has starts left; next adds the rule for
// ticks that have none. A free tick is also over when a later tick falls due or the grace has passed, because then no
// replica looks for it any more.
var transitions = [transitionCount][stateCount]state{
	// tickFree, tickClaimed, tickRunning, tickOrphaned, tickReclaimed, tickOver
	onClaim:        {tickClaimed, impossible, impossible, tickReclaimed, impossible, impossible},
	onStart:        {impossible, tickRunning, impossible, impossible, tickRunning, impossible},
	onRelease:      {impossible, tickFree, impossible, impossible, tickOrphaned, impossible},
	onCompletion:   {impossible, impossible, tickOver, impossible, impossible, impossible},
	onInterruption: {impossible, impossible, tickOrphaned, impossible, impossible, impossible},
	onDeath:        {impossible, tickFree, tickOrphaned, impossible, tickOrphaned, impossible},
}

// next returns the state after t, for a tick with a number of starts left. An orphan without starts left is over.
func (s state) next(t transition, startsLeft int) state {
	next := transitions[t][s]
	if next == tickOrphaned && startsLeft <= 0 {
		return tickOver
	}
	return next
}
