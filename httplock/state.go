package httplock

// A state is how far the answer of a handler has come.
type state int

const (
	stateOpen       state = iota // the handler has not begun it
	stateBuffered                // it has begun, and is kept back
	stateStreaming               // it goes out as it comes
	stateOversized               // it is larger than what may be kept back, and must not be streamed
	stateSent                    // it was sent whole
	stateRefused                 // none of it was sent: a refusal is, in its place
	stateDropped                 // none of it was sent, and nothing is in its place: whoever recovers the panic answers
	stateBroken                  // its connection is broken, so that nobody takes it for whole
	stateImpossible              // no state: nothing of the kind can happen
)

// A happening is what changes the state of an answer.
type trigger int

const (
	onBegin       trigger = iota // the handler writes the header, or the first byte of the body
	onFlush                      // it flushes an answer that may be streamed
	onStreamLimit                // it writes more than is kept back of an answer that may be streamed
	onBufferLimit                // it writes more than is kept back of one that may not
	onReturn                     // it has returned, and its leases are settled
	onCutShort                   // it panics, or ends a stream before its Content-Length; its leases are settled
	onLeaseLost                  // it has returned or panicked, and a lease was lost
	onBypass                     // it has returned or panicked, and something was sent that was not written to the response
)

// life is the life of an answer: what follows from each state of it by all that can happen. An answer may be streamed over
// HTTP/1.1 and later, on a connection that can be broken, without an Idempotency-Key, and with a status that allows a body:
// only then has the client more to come, and sees that it is missing. The states from sent on are final.
var transitions = [...][stateSent]state{
	//         open        kept        streaming   oversized
	onBegin:       {stateBuffered, stateBuffered, stateStreaming, stateOversized},
	onFlush:       {stateImpossible, stateStreaming, stateStreaming, stateImpossible},
	onStreamLimit: {stateImpossible, stateStreaming, stateImpossible, stateImpossible},
	onBufferLimit: {stateImpossible, stateOversized, stateImpossible, stateOversized},
	onReturn:      {stateSent, stateSent, stateSent, stateRefused},
	onCutShort:    {stateDropped, stateDropped, stateBroken, stateDropped},
	onLeaseLost:   {stateRefused, stateRefused, stateBroken, stateRefused},
	onBypass:      {stateBroken, stateBroken, stateImpossible, stateBroken},
}

// after returns the state that follows.
func (s state) next(h trigger) state {
	if s >= stateSent {
		return s
	}
	return transitions[h][s]
}
