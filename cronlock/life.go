package cronlock

// A state is how far a tick has come. It is stored nowhere: it follows from the records of the tick's starts and of its
// end, and from who holds the job's lease.
type state int

const (
	free    state = iota // due, not started, and nobody is about to start it
	taken                // a replica holds the job's lease to start it for the first time
	running              // a start is recorded, and its replica holds the job's lease
	orphan               // a start is recorded and no end, nobody holds the job's lease, and starts are left
	retaken              // a replica holds the job's lease to start it once more
	over                 // it will not be started any more
	states
)

// A happening is what changes the state of a tick.
type happening int

const (
	looked    happening = iota // a replica takes the job's lease to start it
	started                    // a quorum records the start
	givenBack                  // the claim ends without a call of the function
	returned                   // the function returns nil, or an error of its own
	stopped                    // it panics, or it was told to stop and returns an error
	died                       // its replica dies, or loses the lease
	happenings
)

// impossible is where nothing of the kind can happen.
const impossible = states

// life is the life of a tick: what follows from each state by all that can happen to it. An orphan that has no starts left
// is over. A free tick is over, too, when a later tick falls due or the grace passes: it is then not looked for any more.
var life = [happenings][states]state{
	//            free        taken       running     orphan      retaken     over
	looked:    {taken, impossible, impossible, retaken, impossible, impossible},
	started:   {impossible, running, impossible, impossible, running, impossible},
	givenBack: {impossible, free, impossible, impossible, orphan, impossible},
	returned:  {impossible, impossible, over, impossible, impossible, impossible},
	stopped:   {impossible, impossible, orphan, impossible, impossible, impossible},
	died:      {impossible, free, orphan, impossible, orphan, impossible},
}

// after returns the state that follows, for a tick that has so many starts left.
func (s state) after(h happening, left int) state {
	next := life[h][s]
	if next == orphan && left <= 0 {
		return over
	}
	return next
}
