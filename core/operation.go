package core

import "context"

// An operation is an acquisition as its caller and observers see it. For a lock it is one acquisition. For a semaphore it is
// several, its members. Observers are told of the operation, and not of the members.
type operation struct {
	l        *Locker
	p        *policy
	key      string
	parent   context.Context // the context of the lease is derived from it
	ctx      context.Context // the requests are sent in it; the observer has derived it
	metadata string          // the note, name and hint that the lease carries
	end      func(Outcome)   // tells the observer of the end; may be nil
}

// begin begins an operation. The observer is called before any wait, so that its span includes the wait.
func (l *Locker) begin(ctx context.Context, key string, try bool, p *policy) operation {
	op := operation{l: l, p: p, key: key, parent: ctx}
	if p.detached {
		op.parent = context.WithoutCancel(ctx)
	}

	// The attempts run in the context that the observer derives, and the hint is asked for in it.
	op.ctx, op.end = p.observe(ctx, OpAcquire, key, try, 0)
	op.metadata = p.metadataFor(op.ctx)
	return op
}

// newCall returns a call for a key as part of the operation.
func (op *operation) newCall(key string, try bool) call {
	return call{
		e:        op.l.e,
		p:        op.p,
		key:      key,
		resource: op.l.e.Keys.Resource(key),
		parent:   op.parent,
		tryOnly:  try,
		metadata: op.metadata,
	}
}

// conclude tells the observer of the end of the operation, and returns the results for its caller.
func (op *operation) conclude(lease *Lease, out Outcome, err error) (*Lease, error) {
	if op.p.observer.Start == nil {
		return lease, err
	}

	// If the observer ends the goroutine, the caller does not get the lease. Then it is released.
	unreturned := lease
	defer func() { unreturned.Release(op.ctx) }()
	if lease != nil {
		lease.observeHold()

		// Close may have ended the lease while the observer was told of it. Then the call fails as one that Close
		// ended.
		endedByClose := op.l.e.IsClosing() && lease.Lost() != nil
		if endedByClose {
			lease, err = nil, new(refusal).stopError(op.ctx, op.l.e.Group, OpAcquire, op.key)
		}
	}
	if op.end != nil {
		out.Err = err
		op.end(out)
	}
	unreturned = nil
	return lease, err
}
