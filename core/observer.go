package core

import (
	"context"
	"slices"
	"time"
)

// An OpKind names an operation.
type OpKind uint8

const (
	OpAcquire  OpKind = iota // from the call to the grant or the error, waiting included
	OpHold                   // from the grant to the release, completion or loss
	OpRenew                  // one round of renewal
	OpRelease                // one release
	OpComplete               // one completion
	OpTouch                  // one request to a node that nobody has asked for a while; only a NodeObserver hears of it

	opProvision // of nodes, which is not observed
	opProbe     // at the start, likewise
	opBatch     // of several operations, which are observed
)

// String returns the operation's name in lower case.
func (k OpKind) String() string {
	if names := [...]string{"acquire", "hold", "renew", "release", "complete", "touch"}; int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// An Observer watches operations. Start is called when one begins and may derive a context, in which the
// node calls of the operation run; the function it returns is called exactly once, when the operation ends.
// Operations that have started and not ended are what is waiting (OpAcquire) and held (OpHold) now.
//
// Both are called on the operation's path: they must be fast and safe for concurrent use. The function may be
// nil where the end is of no interest.
type Observer interface {
	Start(ctx context.Context, op Op) (context.Context, func(Outcome))
}

// An Op is an operation that begins.
type Op struct {
	Kind  OpKind
	Name  string // WithName: the low-cardinality class of the key
	Key   string
	Nodes int
	Try   bool   // OpAcquire: does not wait
	Token uint64 // all but OpAcquire: fencing token of the lease
}

// An EventObserver is an Observer that also hears what operations do not show: what the packages built on
// this one decided, such as a tick that was skipped or a duplicate that was not run.
type EventObserver interface {
	Observer
	Event(ctx context.Context, e Event)
}

// An Event is a decision that a package built on this one has to tell, to be counted.
type Event struct {
	Source string // the package, such as "cronlock"
	Name   string // WithName: the low-cardinality class of the key
	Kind   string // what was decided: one of few words, listed by the package
}

// A NodeObserver is an Observer that also hears what each node makes of each request. Outcome.Nodes shows only
// what was known when the outcome was decided, and a quorum decides without its slowest nodes.
//
// It is called once per request and node, when the node answers or fails, which may be long after the
// operation has ended, or is left alone (CircuitOpen). The kind is that of the request: an OpAcquire may
// also send renewals and releases. OpTouch is a request that belongs to no operation: with the restart guard,
// nodes that are idle are asked now and then whether they vote.
type NodeObserver interface {
	Observer
	Node(ctx context.Context, kind OpKind, reply NodeReply)
}

// A Carrier is an Observer that has leases carry a few bytes for those that wait for them, such as the trace
// context of the holder: Outcome.Holder shows them to the observers of waiters in all processes. Carry is
// called with the context that Start returned for an OpAcquire, and must be fast. What is empty or longer than
// 128 bytes is not carried; with more than 24, Redis takes twice the memory for a lease.
//
// It is a hint. It is not there where the holder has no Carrier, or a renewal had to bring the lease back; but
// it is never that of another than the holder.
type Carrier interface {
	Observer
	Carry(ctx context.Context) string
}

const maxCarried = 128

// An Outcome is how an operation ended.
type Outcome struct {
	Err        error         // what the caller got; OpHold: ErrReleased after Release or Complete, else why the lease ended
	Reason     LossReason    // with ErrLost
	Token      uint64        // OpAcquire: fencing token granted
	Attempts   int           // OpAcquire: rounds it took
	Contended  bool          // OpAcquire: somebody else held the key
	Holder     string        // OpAcquire: what the holder's Carrier gave along, of the last one that was in the way
	LocalWait  time.Duration // OpAcquire: the part spent behind others of this process
	Place      int           // OpAcquire: its place in the nodes' queue when it joined, and so the queue's length; 0 = it was in none
	Woken      int           // OpAcquire: how often a node said that its turn had come
	Polled     int           // OpAcquire: how often it asked again without having been told
	HandedOver bool          // OpAcquire: granted because a node said that its turn had come; not by another caller of this process (LocalWait)
	Margin     time.Duration // OpAcquire: trusted time left; OpRenew: what was left before this round
	Nodes      []NodeReply   // the last round, node by node; stragglers are Pending
}

// Observers joins several: started in order, ended in reverse.
func Observers(observers ...Observer) Observer { return joined(observers) }

type joined []Observer

func (j joined) Start(ctx context.Context, op Op) (context.Context, func(Outcome)) {
	ends := make([]func(Outcome), len(j))
	for i, o := range j {
		ctx, ends[i] = o.Start(ctx, op)
	}
	return ctx, func(out Outcome) {
		for _, end := range slices.Backward(ends) {
			if end != nil {
				end(out)
			}
		}
	}
}

func (j joined) Event(ctx context.Context, e Event) {
	for _, o := range j {
		if o, ok := o.(EventObserver); ok {
			o.Event(ctx, e)
		}
	}
}

func (j joined) Node(ctx context.Context, kind OpKind, reply NodeReply) {
	for _, o := range j {
		if o, ok := o.(NodeObserver); ok {
			o.Node(ctx, kind, reply)
		}
	}
}

// Carry asks for the first that has something: there is room for one.
func (j joined) Carry(ctx context.Context) string {
	for _, o := range j {
		if o, ok := o.(Carrier); ok {
			if s := o.Carry(ctx); s != "" {
				return s
			}
		}
	}
	return ""
}

// observe starts an operation; end is nil without an observer, so that nothing need be gathered for it.
func (p *policy) observe(ctx context.Context, kind OpKind, key string, try bool, token uint64) (context.Context, func(Outcome)) {
	if p.observer == nil {
		return ctx, nil
	}
	return p.observer.Start(ctx, Op{Kind: kind, Name: p.name, Key: key, Nodes: p.nodes, Try: try, Token: token})
}

// carry asks the observer what the lease that is being acquired shall carry.
func (p *policy) carry(ctx context.Context) string {
	if o, ok := p.observer.(Carrier); ok {
		if s := o.Carry(ctx); len(s) <= maxCarried {
			return s
		}
	}
	return ""
}
