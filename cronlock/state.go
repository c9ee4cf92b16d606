package cronlock

// A state is how far a tick has come. It is stored nowhere: it follows from the records of the tick's starts and of its
// end, and from who holds the job's lease.
type state int

const (
	tickFree      state = iota // due, not started, and nobody is about to start it
	tickClaimed                // a replica holds the job's lease to start it for the first time
	tickRunning                // a start is recorded, and its replica holds the job's lease
	tickOrphaned               // a start is recorded and no end, nobody holds the job's lease, and starts are left
	tickReclaimed              // a replica holds the job's lease to start it once more
	tickOver                   // it will not be started any more
	stateCount
)

// A happening is what changes the state of a tick.
type transition int

const (
	onClaim        transition = iota // a replica takes the job's lease to start it
	onStart                          // a quorum records the start
	onRelease                        // the claim ends without a call of the function
	onCompletion                     // the function returns nil, or an error of its own
	onInterruption                   // it panics, or it was told to stop and returns an error
	onDeath                          // its replica dies, or loses the lease
	transitionCount
)

// impossible is where nothing of the kind can happen.
const impossible = stateCount

// life is the life of a tick: what follows from each state by all that can happen to it. An orphan that has no starts left
// is over. A free tick is over, too, when a later tick falls due or the grace passes: it is then not looked for any more.
var transitions = [transitionCount][stateCount]state{
	//            free        taken       running     orphan      retaken     over
	onClaim:        {tickClaimed, impossible, impossible, tickReclaimed, impossible, impossible},
	onStart:        {impossible, tickRunning, impossible, impossible, tickRunning, impossible},
	onRelease:      {impossible, tickFree, impossible, impossible, tickOrphaned, impossible},
	onCompletion:   {impossible, impossible, tickOver, impossible, impossible, impossible},
	onInterruption: {impossible, impossible, tickOrphaned, impossible, impossible, impossible},
	onDeath:        {impossible, tickFree, tickOrphaned, impossible, tickOrphaned, impossible},
}

// after returns the state that follows, for a tick that has so many starts left.
func (s state) next(h transition, left int) state {
	next := transitions[h][s]
	if next == tickOrphaned && left <= 0 {
		return tickOver
	}
	return next
}
