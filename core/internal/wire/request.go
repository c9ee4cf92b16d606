package wire

import "time"

// A Request is what is asked of a node.
type Request struct {
	op    Op
	kind  byte // how it stands in a command; 0 = it has a script of its own
	lock  *Lock
	lease Millis
	own   []byte // what is its own in a command, packed

	script *script
	tail   []any // what is its own in the arguments of its script
}

// How requests stand in a command: see lua/run.lua. Those of one kind that are plain, follow one another and have their lease
// in common are a group.
const (
	plainAcquire, acquires = 'A', 'a'
	plainRenew, renews     = 'R', 'r'
	plainRelease, releases = 'E', 'e'
	completes, touches     = 'c', 't'
)

// Op is what the request is for.
func (r Request) Op() Op { return r.op }

// One is a request for Encode.
func One(r Request) func(i int) Request { return func(int) Request { return r } }

// A Waiter names a call that waits, in the queues of the nodes. The zero Waiter is none.
type Waiter struct {
	Name   string
	Ticket Stamp // when the call began
}

// Waiter names the call that made the attempt, in the queues of the nodes.
func (l *Lock) Waiter() Waiter { return Waiter{Name: l.id} }

// Quits is the waiter that leaves the queues.
func (w Waiter) Quits() Waiter {
	w.Ticket = Stamp{}
	return w
}

// member is what a waiter is called in the queues: nodes tell it there.
func (w Waiter) member(c Channel) string {
	if w.Name == "" {
		return ""
	}
	return c.how + " " + w.Name
}

// An Acquire asks for the key.
type Acquire struct {
	Settle  bool    // settles a record that is not decided
	Propose Stamp   // the token, the same to all nodes
	Carried string  // a [Holder], shown to those whom the lease keeps waiting, and to who looks
	Channel Channel // where the call is told that its turn has come; zero = it does not wait
	Waiter  Waiter  // zero = it is called as the attempt
}

// Acquire is a request for the key, for so long a lease.
func (l *Lock) Acquire(lease Millis, a Acquire) Request {
	r := Request{op: OpAcquire, kind: plainAcquire, lock: l, lease: lease}
	own := make([]byte, 0, 64+len(a.Carried))
	own = appendNumber(own, a.Propose.µs)
	own = appendText(own, l.id)
	if a.Carried == "" {
		own = appendNumber(own, 0)
	} else { // as it stands in a resource: no turn before it
		own = appendNumber(own, int64(10+len(a.Carried)))
		own = append(own, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		own = appendText(own, a.Carried)
	}
	if a.Channel.how == "" {
		own = appendNumber(own, 0)
	} else {
		own = appendNumber(own, int64(2+len(a.Channel.how)+len(a.Waiter.Name)+8))
		own = appendText(own, a.Channel.how)
		own = appendText(own, a.Waiter.Name)
		own = appendNumber(own, a.Waiter.Ticket.µs)
	}
	if a.Settle { // who comes to settle a record waits for a node that shows it
		r.kind = acquires
		own = appendNumber(own, lease.ms)
	}
	r.own = own
	return r
}

// A Renew keeps a lease, or settles its token, on a node that granted it.
type Renew struct {
	Token     uint64
	Confirmed NodeTime // the expiry that the node last confirmed
	Granted   uint64   // of what settles the token: that which the node granted,
	Memory    string   // and what it remembered; 0 and "" = nothing is settled
	Turn      Millis   // for how long a node that refuses keeps others out, so that the next one finds it free
	Carried   string
}

// Renew makes a request for each of n nodes.
func (l *Lock) Renew(lease Millis, n int, of func(node int) Renew) Each {
	all := make([]Request, n)
	packed := make([]byte, 0, n*128)
	for i := range all {
		r := of(i)
		start := len(packed)
		kind := byte(plainRenew)
		packed = appendNumber(packed, int64(r.Token))
		packed = appendText(packed, l.id)
		packed = appendNumber(packed, r.Confirmed.Millis())
		packed = appendNumber(packed, r.Turn.ms)
		packed = appendText(packed, r.Carried)
		if r.Granted > 0 {
			kind = renews
			packed = appendNumber(packed, lease.ms)
			packed = appendNumber(packed, int64(r.Granted))
			packed = appendText(packed, r.Memory)
		}
		all[i] = Request{op: OpRenew, kind: kind, lock: l, lease: lease, own: packed[start:]}
	}
	return func(i int) Request { return all[i] }
}

// An Each is what is asked of each node.
type Each func(node int) Request

// A Complete records the key as done, and ends the attempt.
type Complete struct {
	Ballot  uint64
	Memory  string // what the node remembered when it last vouched for the attempt
	Rest    time.Duration
	Token   uint64
	Result  []byte
	Bury    Millis // life of the tombstone
	Decided bool   // nodes that have promised a later token, or forgotten one, accept it, too
	Channel Channel
	Quits   Waiter // leaves the queues
}

// Complete makes a request for each of n nodes.
func (l *Lock) Complete(n int, of func(node int) Complete) Each {
	all := make([][]byte, n)
	for i := range all {
		c := of(i)
		own := make([]byte, 0, 256+len(c.Result))
		own = appendNumber(own, int64(c.Ballot))
		own = appendText(own, l.id)
		own = appendText(own, c.Memory)
		own = appendNumber(own, c.Rest.Milliseconds())
		own = appendNumber(own, int64(c.Token))
		own = appendNumber(own, c.Bury.ms)
		own = append(own, oneOrZero(c.Decided))
		own = appendText(own, c.Quits.member(c.Channel))
		own = appendNumber(own, int64(len(c.Result)))
		all[i] = append(own, c.Result...)
	}
	return func(i int) Request { return Request{op: OpComplete, kind: completes, lock: l, own: all[i]} }
}

// A Release ends an attempt.
type Release struct {
	Bury      Millis        // life of the tombstone
	Arrived   bool          // where the lease is found, nothing can arrive any more, so there is no tombstone
	Cooldown  time.Duration // for so long nobody gets the key, in whole milliseconds and no shorter
	DropBelow uint64        // drops a record with a smaller ballot
	Again     bool          // another release of the attempt was sent before
	Undo      bool          // nobody has seen the token, so the node may give it out again
	Channel   Channel
	Waiter    Waiter // leaves the queues, or, with a Ticket, goes on waiting; zero = neither
}

// Release is a request that ends the attempt.
func (l *Lock) Release(r Release) Request {
	buried := r.Bury.ms
	if r.Arrived {
		buried = -buried
	}
	own := make([]byte, 0, 64)
	own = appendText(own, l.id)
	own = appendNumber(own, int64(r.DropBelow))
	own = appendNumber(own, buried)
	plain := buried <= 0 && r.Cooldown <= 0 && !r.Undo && r.Waiter.Name == ""
	if plain {
		return Request{op: OpRelease, kind: plainRelease, lock: l, own: own}
	}
	own = appendNumber(own, (r.Cooldown + time.Millisecond - 1).Milliseconds())
	own = append(own, oneOrZero(r.Undo)+2*oneOrZero(r.Again))
	own = appendText(own, r.Waiter.member(r.Channel))
	own = appendNumber(own, r.Waiter.Ticket.µs)
	return Request{op: OpRelease, kind: releases, lock: l, own: own}
}

// Touch asks a node whether it would grant a key of the bucket.
func (k *Keyspace) Touch(bucket int) Request {
	return Request{op: OpTouch, kind: touches, lock: &Lock{resource: k.probe(bucket), guard: k.guards[bucket]}}
}

// Provision asks a node what it is, and declares it new where it was found so under a claim; NoMemory = it is claimed.
func (k *Keyspace) Provision(bucket int, claim, found string) Request {
	return Request{op: OpProvision, script: provisionScript, lock: &Lock{resource: k.Guard(bucket), id: claim}, tail: []any{found}}
}

// Mark asks a node to be marked by an operator who is about to lower the longest lease in use to so much.
func (k *Keyspace) Mark(bucket int, to Millis) Request { return k.lowering(bucket, "mark", to, "") }

// CheckMark asks whether a node is marked still as it answered to Mark.
func (k *Keyspace) CheckMark(bucket int, mark string) Request {
	return k.lowering(bucket, "check", Millis{}, mark)
}

// Lower lowers the longest lease in use, on a node that is marked still as it answered to Mark.
func (k *Keyspace) Lower(bucket int, to Millis, mark string) Request {
	return k.lowering(bucket, "lower", to, mark)
}

// Unmark takes away what mark there is.
func (k *Keyspace) Unmark(bucket int) Request { return k.lowering(bucket, "unmark", Millis{}, "") }

func (k *Keyspace) lowering(bucket int, step string, to Millis, mark string) Request {
	return Request{op: OpLower, script: lowerScript, lock: &Lock{resource: k.Guard(bucket)}, tail: []any{step, to.ms, mark}}
}

// Revoke ends somebody else's attempt. Its tombstone outlives every lease, whatever the holder's options are, which may be
// renewed until a node tells it, and what of that is under way.
func (l *Lock) Revoke(h *Head) Request {
	return Request{op: OpRevoke, script: revokeScript, lock: l, tail: []any{(2 * Slack).Milliseconds(), h.idle}}
}

// Forget drops the completion record of a key that has this token.
func (k *Keyspace) Forget(key string, token uint64) Request {
	return Request{op: OpForget, script: forgetScript, lock: &Lock{resource: k.Resource(key)}, tail: []any{token}}
}

// Probe tries the rights that scripts need on a server that has the keys of the bucket. [ParseRights] reads the reply.
func (k *Keyspace) Probe(bucket int, sharded bool) Request {
	publish := "publish"
	if sharded {
		publish = "spublish"
	}
	return Request{op: OpProbe, script: probeScript, lock: &Lock{resource: k.probe(bucket)}, tail: []any{publish, k.Channel(bucket, "").Name}}
}
