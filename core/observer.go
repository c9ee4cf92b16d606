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
)

// String returns the operation's name in lower case.
func (k OpKind) String() string {
	if names := [...]string{"acquire", "hold", "renew", "release", "complete"}; int(k) < len(names) {
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

// An Outcome is how an operation ended.
type Outcome struct {
	Err       error         // what the caller got; OpHold: ErrReleased after Release or Complete, else why the lease ended
	Reason    LossReason    // with ErrLost
	Token     uint64        // OpAcquire: fencing token granted
	Attempts  int           // OpAcquire: rounds it took
	Contended bool          // OpAcquire: somebody else held the key
	LocalWait time.Duration // OpAcquire: the part spent behind others of this process
	Margin    time.Duration // OpAcquire: trusted time left; OpRenew: what was left before this round
	Nodes     []NodeReply   // the last round, node by node; stragglers are Pending
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

// Event tells the observer, if it is an [EventObserver], that source decided kind about a key of l's name.
// It is for packages that translate a lock into the words of another library.
func (l *Locker) Event(ctx context.Context, source, kind string) {
	if o, ok := l.p.observer.(EventObserver); ok {
		o.Event(ctx, Event{Source: source, Name: l.p.name, Kind: kind})
	}
}

// observe starts an operation; end is nil without an observer, so that nothing need be gathered for it.
func (l *Locker) observe(ctx context.Context, kind OpKind, key string, try bool, token uint64) (context.Context, func(Outcome)) {
	if l.p.observer == nil {
		return ctx, nil
	}
	return l.p.observer.Start(ctx, Op{Kind: kind, Name: l.p.name, Key: key, Nodes: len(l.e.nodes), Try: try, Token: token})
}
