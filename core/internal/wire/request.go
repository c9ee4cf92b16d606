package wire

import "time"

// A Request is one request to a node.
type Request struct {
	op      Op
	kind    byte // the form in a command that requests share; 0 if the request has a script of its own
	lock    *Lock
	lease   Millis
	payload []byte // of a request with a kind: its packed arguments

	// Of a request with a script: the arguments that follow the usual ones.
	script *script
	extra  []any
}

// The kinds of requests in a command, see lua/run.lua. Consecutive plain requests of one kind and with the same lease
// form a group.
const (
	kindPlainAcquire, kindAcquire = 'A', 'a'
	kindPlainRenew, kindRenew     = 'R', 'r'
	kindPlainRelease, kindRelease = 'E', 'e'
	kindComplete, kindTouch       = 'c', 't'
)

// Op returns the operation of the request.
func (r Request) Op() Op {
	return r.op
}

// Repeat returns a function for Encode that returns r for every index.
func Repeat(r Request) func(i int) Request {
	return func(int) Request { return r }
}

// A Waiter names a waiting call in the queues of the nodes. The zero Waiter means that no call waits.
type Waiter struct {
	Name   string
	Ticket Stamp // when the call began
}

// Waiter returns the Waiter of a call whose first attempt is l.
func (l *Lock) Waiter() Waiter {
	return Waiter{Name: l.id}
}

// Leaving returns w without its ticket: a waiter that leaves the queues.
func (w Waiter) Leaving() Waiter {
	w.Ticket = Stamp{}
	return w
}

// member returns the member of the sorted set that stands for the waiter. It names the channel that notifies the
// waiter.
func (w Waiter) member(c Channel) string {
	if w.Name == "" {
		return ""
	}
	return c.how + " " + w.Name
}

// An Acquire has the arguments of a request for the key.
type Acquire struct {
	Settle        bool    // the attempt completes an unfinished completion record
	ProposedToken Stamp   // the proposed token, the same for all nodes
	Carried       string  // a packed [Holder], which nodes show to waiters and to Inspect
	Channel       Channel // notifies the call that its turn has come; zero if the call does not wait
	Waiter        Waiter  // the call in the queues; zero if it has the name of this attempt
}

// Acquire returns a request for the key, with a lease of that duration.
func (l *Lock) Acquire(lease Millis, a Acquire) Request {
	r := Request{op: OpAcquire, kind: kindPlainAcquire, lock: l, lease: lease}
	payload := make([]byte, 0, 64+len(a.Carried))
	payload = appendNumber(payload, a.ProposedToken.µs)
	payload = appendText(payload, l.id)

	if a.Carried == "" {
		payload = appendNumber(payload, 0)
	} else {
		// The bytes as a resource stores them: an empty turn of 9 bytes, then the text behind its length.
		payload = appendNumber(payload, int64(10+len(a.Carried)))
		payload = append(payload, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		payload = appendText(payload, a.Carried)
	}

	if a.Channel.how == "" {
		payload = appendNumber(payload, 0)
	} else {
		payload = appendNumber(payload, int64(2+len(a.Channel.how)+len(a.Waiter.Name)+8))
		payload = appendText(payload, a.Channel.how)
		payload = appendText(payload, a.Waiter.Name)
		payload = appendNumber(payload, a.Waiter.Ticket.µs)
	}

	if a.Settle {
		// The node must show the record, and the plain form shows none.
		r.kind = kindAcquire
		payload = appendNumber(payload, lease.ms)
	}

	r.payload = payload
	return r
}

// A Renew has the arguments of a renewal, or of the write-back of a token to a node that granted a smaller one.
type Renew struct {
	Token     uint64
	Confirmed NodeTime // the expiry that the node last confirmed
	Granted   uint64   // of a write-back: the token that the node granted; otherwise 0
	Memory    string   // of a write-back: the node's memory when it granted that; otherwise ""
	Turn      Millis   // how long a node that refuses the renewal refuses others, so that the next renewal succeeds
	Carried   string   // a packed [Holder], stored if the lease is brought back
}

// Renew returns a renewal for each of n nodes. arguments returns the arguments of a node.
func (l *Lock) Renew(lease Millis, n int, arguments func(node int) Renew) RequestOf {
	all := make([]Request, n)
	payloads := make([]byte, 0, n*128) // one allocation for all
	for i := range all {
		r := arguments(i)
		start := len(payloads)
		kind := byte(kindPlainRenew)
		payloads = appendNumber(payloads, int64(r.Token))
		payloads = appendText(payloads, l.id)
		payloads = appendNumber(payloads, r.Confirmed.Millis())
		payloads = appendNumber(payloads, r.Turn.ms)
		payloads = appendText(payloads, r.Carried)

		if r.Granted > 0 {
			kind = kindRenew
			payloads = appendNumber(payloads, lease.ms)
			payloads = appendNumber(payloads, int64(r.Granted))
			payloads = appendText(payloads, r.Memory)
		}

		all[i] = Request{op: OpRenew, kind: kind, lock: l, lease: lease, payload: payloads[start:]}
	}

	return func(i int) Request { return all[i] }
}

// A RequestOf returns the request to a node.
type RequestOf func(node int) Request

// A Complete has the arguments of a request that stores a completion record and ends the attempt.
type Complete struct {
	Ballot        uint64
	Memory        string        // the node's memory when it last confirmed the lease
	Retention     time.Duration // how long the record is kept
	Token         uint64        // of the lease that completed the key
	Result        []byte
	TombstoneLife Millis // how long the tombstone is kept
	Decided       bool   // a quorum holds the record: nodes that promised a later token, or forgot one, accept it, too
	Channel       Channel
	Leaving       Waiter // a call that leaves the queues; zero if there is none
}

// Complete returns a request for each of n nodes. arguments returns the arguments of a node.
func (l *Lock) Complete(n int, arguments func(node int) Complete) RequestOf {
	all := make([][]byte, n)
	for i := range all {
		c := arguments(i)
		payload := make([]byte, 0, 256+len(c.Result))
		payload = appendNumber(payload, int64(c.Ballot))
		payload = appendText(payload, l.id)
		payload = appendText(payload, c.Memory)
		payload = appendNumber(payload, c.Retention.Milliseconds())
		payload = appendNumber(payload, int64(c.Token))
		payload = appendNumber(payload, c.TombstoneLife.ms)
		payload = append(payload, boolByte(c.Decided))
		payload = appendText(payload, c.Leaving.member(c.Channel))
		payload = appendNumber(payload, int64(len(c.Result)))
		all[i] = append(payload, c.Result...)
	}

	return func(i int) Request {
		return Request{op: OpComplete, kind: kindComplete, lock: l, payload: all[i]}
	}
}

// A Release has the arguments of a request that ends an attempt.
type Release struct {
	TombstoneLife  Millis        // how long the tombstone is kept
	Arrived        bool          // no tombstone is needed if the node has the lease: no other request can arrive later
	Cooldown       time.Duration // how long the key is not granted; rounded up to whole milliseconds
	DropBelow      uint64        // drops a completion record with a smaller ballot
	Repeated       bool          // another release of the attempt was sent before
	RestoreCounter bool          // the token has not been shown to a caller, so the node may grant it again
	Channel        Channel
	Waiter         Waiter // goes on waiting if it has a Ticket, otherwise leaves the queues; zero if no call waits
}

// Release returns a request that ends the attempt.
func (l *Lock) Release(r Release) Request {
	buried := r.TombstoneLife.ms
	if r.Arrived {
		buried = -buried
	}

	payload := make([]byte, 0, 64)
	payload = appendText(payload, l.id)
	payload = appendNumber(payload, int64(r.DropBelow))
	payload = appendNumber(payload, buried)

	plain := buried <= 0 && r.Cooldown <= 0 && !r.RestoreCounter && r.Waiter.Name == ""
	if plain {
		return Request{op: OpRelease, kind: kindPlainRelease, lock: l, payload: payload}
	}

	payload = appendNumber(payload, (r.Cooldown + time.Millisecond - 1).Milliseconds())
	payload = append(payload, boolByte(r.RestoreCounter)+2*boolByte(r.Repeated))
	payload = appendText(payload, r.Waiter.member(r.Channel))
	payload = appendNumber(payload, r.Waiter.Ticket.µs)
	return Request{op: OpRelease, kind: kindRelease, lock: l, payload: payload}
}

// Touch returns a request that asks a node whether it would grant a key of the bucket.
func (k *Keyspace) Touch(bucket int) Request {
	return Request{
		op:   OpTouch,
		kind: kindTouch,
		lock: &Lock{resource: k.probeKey(bucket), guard: k.guards[bucket]},
	}
}
