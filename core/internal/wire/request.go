package wire

import (
	"slices"
	"time"
)

// A Request is what is asked of a node.
type Request struct {
	script *script
	lock   *Lock
	lease  Millis
	tail   []any // what is its own, in the order of the script
	args   []any // the command where it does not depend on when it is sent; tail is the end of it
}

// Op is what the request is for.
func (r Request) Op() Op { return r.script.op }

// A Waiter names a call that waits, in the queues of the nodes. The zero Waiter is none.
type Waiter struct {
	Name   string
	name   any
	Ticket Stamp // when the call began
}

// Quits is the waiter that leaves the queues.
func (w Waiter) Quits() Waiter { w.Ticket = Stamp{}; return w }

// member is what a waiter is called in the queues: nodes tell it there.
func (w Waiter) member(c Channel) any {
	if w.name == nil {
		return ""
	}
	return c.boxed.(string) + " " + w.Name
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
	settle := no
	if a.Settle { // who comes to settle a record waits for a node that shows it
		settle = yes
	}
	tail := append(make([]any, 0, 6), settle, a.Propose.µs)
	switch {
	case a.Waiter.name != nil:
		tail = append(tail, a.Carried, a.Channel.boxed, a.Waiter.name, a.Waiter.Ticket.µs)
	case a.Channel.boxed != nil:
		tail = append(tail, a.Carried, a.Channel.boxed)
	case a.Carried != "":
		tail = append(tail, a.Carried)
	}
	return Request{script: acquireScript, lock: l, lease: lease, tail: tail}
}

// A Renew keeps a lease, or settles its token, on a node that granted it.
type Renew struct {
	Token     uint64
	Confirmed NodeTime // the expiry that the node last confirmed
	Granted   uint64   // of what settles the token: that which the node granted,
	Memory    string   // and what it remembered; "" = nothing is settled
	Turn      Millis   // for how long a node that refuses keeps others out, so that the next one finds it free
	Carried   string
}

// Renew makes a request for each of n nodes; those that are alike but for the node share what they can.
func (l *Lock) Renew(lease Millis, n int, of func(node int) Renew) Each {
	const width = 6
	all := make([]any, 0, width*n)
	var token, carried any
	for i := range n {
		r := of(i)
		if i == 0 {
			token, carried = r.Token, r.Carried
		}
		memory := any(NoMemory)
		if r.Memory != "" {
			memory = r.Memory
		}
		turn := r.Turn.ms
		if turn == nil {
			turn = 0
		}
		all = append(all, token, r.Confirmed.Millis(), r.Granted, memory, turn, carried)
	}
	return func(i int) Request {
		return Request{script: renewScript, lock: l, lease: lease, tail: all[width*i : width*(i+1) : width*(i+1)]}
	}
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
func (l *Lock) Complete(lease Millis, n int, of func(node int) Complete) Each {
	tails := make([][]any, n)
	for i := range tails {
		c := of(i)
		decided := no
		if c.Decided {
			decided = yes
		}
		tails[i] = []any{c.Ballot, c.Memory, c.Rest.Milliseconds(), c.Token, c.Bury.ms, decided, c.Result, c.Quits.member(c.Channel)}
	}
	return func(i int) Request {
		return Request{script: completeScript, lock: l, lease: lease, tail: tails[i]}
	}
}

// A Release ends an attempt.
type Release struct {
	Bury      Millis        // life of the tombstone; zero = there is none
	Stay      time.Duration // for so long nobody gets the key, in whole milliseconds and no shorter
	DropBelow uint64        // drops a record with a smaller ballot
	Undo      bool          // nobody has seen the token, so the node may give it out again
	Channel   Channel
	Waiter    Waiter // leaves the queues, or, with a Ticket, goes on waiting; zero = neither
}

// Release is a request that ends the attempt.
func (l *Lock) Release(h *Head, r Release) Request {
	bury, undo := r.Bury.ms, no
	if bury == nil {
		bury = no
	}
	if r.Undo {
		undo = yes
	}
	const fixed = 6
	args := append(make([]any, 0, fixed+7), evalsha, releaseScript.sha, 2, l.resource, l.tombstone, l.id,
		bury, (r.Stay + time.Millisecond - 1).Milliseconds(), r.DropBelow, h.idle, undo)
	if r.Waiter.name != nil {
		args = append(args, r.Waiter.member(r.Channel))
	}
	if r.Waiter.Ticket.µs != nil {
		args = append(args, r.Waiter.Ticket.µs)
	}
	return Request{script: releaseScript, lock: l, lease: Millis{0}, tail: args[fixed:], args: args}
}

// WithoutTombstone is a Release for a node where nothing of the attempt can arrive any more.
func (r Request) WithoutTombstone() Request {
	fixed := len(r.args) - len(r.tail)
	r.args = slices.Clone(r.args)
	r.tail = r.args[fixed:]
	r.tail[0] = no
	return r
}

// Touch asks a node whether it would grant a key of the bucket.
func (k *Keyspace) Touch(bucket int) Request {
	probe := k.probe(bucket)
	l := &Lock{Bucket: bucket, resource: probe, tombstone: probe, id: NoMemory}
	if k.guarded {
		l.guard = k.guards[bucket]
	}
	return Request{script: touchScript, lock: l, lease: MillisOf(0)}
}

// Provision asks a node what it is, and declares it new where it was found so under a claim; NoMemory = it is claimed.
func (k *Keyspace) Provision(bucket int, claim, found string) Request {
	return Request{script: provisionScript, lock: &Lock{Bucket: bucket, resource: k.guards[bucket], id: claim}, tail: []any{found}}
}

// Revoke ends somebody else's attempt. Its tombstone outlives every lease, whatever the holder's options are, which may be
// renewed until a node tells it, and what of that is under way.
func (l *Lock) Revoke(h *Head) Request {
	return Request{script: revokeScript, lock: l, tail: []any{(2 * Slack).Milliseconds(), h.idle}}
}

// Forget drops the completion record of a key that has this token.
func (k *Keyspace) Forget(key string, token uint64) Request {
	return Request{script: forgetScript, lock: &Lock{Bucket: k.Bucket(key), resource: k.Resource(key)}, tail: []any{token}}
}

// Probe tries the rights that scripts need on a server that has the keys of the bucket. [ParseRights] reads the reply.
func (k *Keyspace) Probe(bucket int, sharded bool) Request {
	publish := "publish"
	if sharded {
		publish = "spublish"
	}
	return Request{script: probeScript, lock: &Lock{Bucket: bucket, resource: k.probe(bucket)}, tail: []any{publish, k.Channel(bucket, "").Name}}
}

// Boxed once.
var no, yes any = "0", "1"
