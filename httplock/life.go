package httplock

// A state is how far the answer of a handler has come.
type state int

const (
	open       state = iota // the handler has not begun it
	kept                    // it has begun, and is kept back
	streaming               // it goes out as it comes
	oversized               // it is larger than what may be kept back, and must not be streamed
	sent                    // it was sent whole
	refused                 // none of it was sent: a refusal is, in its place
	dropped                 // none of it was sent, and nothing is in its place: whoever recovers the panic answers
	broken                  // its connection is broken, so that nobody takes it for whole
	impossible              // no state: nothing of the kind can happen
)

// A happening is what changes the state of an answer.
type happening int

const (
	begun    happening = iota // the handler writes the header, or the first byte of the body
	flushed                   // it flushes an answer that may be streamed
	outgrown                  // it writes more than is kept back of an answer that may be streamed
	overflow                  // it writes more than is kept back of one that may not
	returned                  // it has returned, and its leases are settled
	cutShort                  // it panics, or ends a stream before its Content-Length; its leases are settled
	lost                      // it has returned or panicked, and a lease was lost
	bypassed                  // it has returned or panicked, and something was sent that was not written to the response
)

// life is the life of an answer: what follows from each state of it by all that can happen. An answer may be streamed over
// HTTP/1.1 and later, on a connection that can be broken, without an Idempotency-Key, and with a status that allows a body:
// only then has the client more to come, and sees that it is missing. The states from sent on are final.
var life = [...][sent]state{
	//         open        kept        streaming   oversized
	begun:    {kept, kept, streaming, oversized},
	flushed:  {impossible, streaming, streaming, impossible},
	outgrown: {impossible, streaming, impossible, impossible},
	overflow: {impossible, oversized, impossible, oversized},
	returned: {sent, sent, sent, refused},
	cutShort: {dropped, dropped, broken, dropped},
	lost:     {refused, refused, broken, refused},
	bypassed: {broken, broken, impossible, broken},
}

// after returns the state that follows.
func (s state) after(h happening) state {
	if s >= sent {
		return s
	}
	return life[h][s]
}
