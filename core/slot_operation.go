package core

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/slot"
)

// A slotOperation is the operation of a semaphore. Its members are acquisitions of slots.
type slotOperation struct {
	operation
	began time.Time // the members have the place in the queues of the nodes that this time gives them

	mu  sync.Mutex // guards out
	out Outcome
}

var _ slot.Operation = (*slotOperation)(nil)

// beginSlot checks a call for one of the slots of a key, and begins its operation.
func (l *Locker) beginSlot(ctx context.Context, key string, try bool, opts []CallOption) (*slotOperation, error) {
	p, err := l.policyForCall(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	err = l.refuseNested(ctx, key, errUnderPermit)
	if err != nil {
		return nil, err
	}

	ofMembers := *p
	ofMembers.member = true
	ofMembers.slotOf = key
	if try {
		ofMembers.maxWait = 0 // as for TryAcquire of a lock
	}
	op := &slotOperation{began: time.Now()}
	op.operation = l.begin(ctx, key, try, &ofMembers)
	return op, nil
}

// Until returns the context that ends the waits of the members: with the caller's, and when MaxWait has passed. The
// cause of the latter is never shown.
func (op *slotOperation) Until() (context.Context, context.CancelFunc) {
	if op.p.maxWait > 0 {
		return context.WithDeadline(op.ctx, op.began.Add(op.p.maxWait))
	}
	return context.WithCancel(op.ctx)
}

// Acquire acquires a slot, until waitCtx ends. The lease does not end with waitCtx. known is as in slot.Operation.
func (op *slotOperation) Acquire(waitCtx context.Context, name string, try bool) (granted any, known bool, err error) {
	a := acquisition{call: op.newCall(name, try), observed: op.end != nil}
	if !try {
		a.waitingSince = op.began
	}
	lease, err := a.runUntil(op.ctx, waitCtx)
	op.record(a.out, lease != nil)
	if err != nil {
		return nil, !a.last.undecided, err
	}
	return lease, true, nil
}

// record adds the outcome of a member to the outcome of the operation.
func (op *slotOperation) record(out Outcome, granted bool) {
	op.mu.Lock()
	defer op.mu.Unlock()

	all := &op.out
	all.Attempts += out.Attempts
	all.Contended = all.Contended || out.Contended
	all.HolderHint = cmp.Or(out.HolderHint, all.HolderHint)

	// The grant decides, and before it the last refusal.
	if granted || all.Token == 0 {
		all.Token = out.Token
		all.Margin = out.Margin
		all.Nodes = out.Nodes
	}
}

// Go runs f on a goroutine that Close waits for. It reports false if the Locker is closed.
func (op *slotOperation) Go(f func()) bool { return op.l.e.gate.Go(f) }

// GiveBack releases a lease that the caller does not get.
func (op *slotOperation) GiveBack(lease any) {
	_ = lease.(*Lease).Release(op.ctx) // if it fails, it is logged, and sent again
}

// Conclude ends the operation, with a lease or an error, and returns the error for the caller.
func (op *slotOperation) Conclude(lease any, err error) error {
	held, _ := lease.(*Lease)
	op.mu.Lock()
	out := op.out
	op.mu.Unlock()
	_, err = op.conclude(held, out, err)
	return err
}
