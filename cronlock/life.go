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
	looked     happening = iota // a replica looks for what to start: by itself, or because its host called
	started                     // a quorum records the start
	refused                     // the start is not recorded, because the nodes or the run's context say no
	givenBack                   // the claim ends without a call of the function
	returned                    // the function returns nil, or an error of its own
	stopped                     // it panics, or it was told to stop and returns an error
	died                        // its replica dies, or loses the lease
	superseded                  // a later tick falls due
	outdated                    // the grace passes
	happenings
)

// impossible is where nothing of the kind can happen.
const impossible = states

// life is the life of a tick: what follows from each state by all that can happen to it. An orphan that has no starts left
// is over. Who looks at a tick that is taken, running or retaken is told core.ErrHeld, and at one that is over
// core.ErrDone or ErrMissed. Whether a start that was refused is on record after all, the next look finds out: the tick
// is then an orphan.
var life = [happenings][states]state{
	//            free        taken       running     orphan      retaken     over
	looked:     {taken, taken, running, retaken, retaken, over},
	started:    {impossible, running, impossible, impossible, running, impossible},
	refused:    {impossible, free, impossible, impossible, orphan, impossible},
	givenBack:  {impossible, free, impossible, impossible, orphan, impossible},
	returned:   {impossible, impossible, over, impossible, impossible, impossible},
	stopped:    {impossible, impossible, orphan, impossible, impossible, impossible},
	died:       {impossible, free, orphan, impossible, orphan, impossible},
	superseded: {over, taken, running, orphan, retaken, over},
	outdated:   {over, taken, running, orphan, retaken, over},
}

// after returns the state that follows, for a tick that has so many starts left.
func (s state) after(h happening, left int) state {
	next := life[h][s]
	if next == orphan && left <= 0 {
		return over
	}
	return next
}
