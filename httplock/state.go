package httplock

// A state is the progress of a handler's response.
type state int

const (
	stateOpen       state = iota // the handler has not begun it
	stateBuffered                // it has begun, and is held back
	stateStreaming               // it is sent while the handler writes it
	stateOversized               // it is larger than maxBuffered, and must not be streamed
	stateSent                    // it was sent whole
	stateRefused                 // it was dropped, and a refusal is sent instead
	stateDropped                 // it was dropped, and nothing is sent: the middleware that recovers the panic responds
	stateBroken                  // its connection is broken, so that the client does not take it for whole
	stateImpossible              // not a state: the trigger cannot occur
)

// A trigger changes the state of a response.
type trigger int

const (
	onBegin       trigger = iota // the handler writes the header, or the first byte of the body
	onFlush                      // the handler flushes a response that may be streamed
	onStreamLimit                // the handler writes more than streamThreshold of a response that may be streamed
	onBufferLimit                // the handler writes more than maxBuffered of a response that must not be streamed
	onReturn                     // the handler has returned, and its leases are ended
	onCutShort                   // it has panicked, or ended a stream before its Content-Length; its leases are ended
	onLeaseLost                  // it has returned or panicked, and a lease was lost
	onBypass                     // it has returned or panicked, and something was written that bypassed the response
)

// transitions is the next state of a response, for each trigger in each state. A response may be streamed over HTTP/1.1
// or later, on a connection that can be broken, without an Idempotency-Key, and with a status that isStreamable
// allows: only then can the client notice that the rest is missing. The states from stateSent on are final.
var transitions = [...][stateSent]state{
	//               stateOpen        stateBuffered   stateStreaming   stateOversized
	onBegin:       {stateBuffered, stateBuffered, stateStreaming, stateOversized},
	onFlush:       {stateImpossible, stateStreaming, stateStreaming, stateImpossible},
	onStreamLimit: {stateImpossible, stateStreaming, stateImpossible, stateImpossible},
	onBufferLimit: {stateImpossible, stateOversized, stateImpossible, stateOversized},
	onReturn:      {stateSent, stateSent, stateSent, stateRefused},
	onCutShort:    {stateDropped, stateDropped, stateBroken, stateDropped},
	onLeaseLost:   {stateRefused, stateRefused, stateBroken, stateRefused},
	onBypass:      {stateBroken, stateBroken, stateBroken, stateBroken},
}

// next returns the state after t.
func (s state) next(t trigger) state {
	if s >= stateSent {
		return s
	}
	return transitions[t][s]
}
