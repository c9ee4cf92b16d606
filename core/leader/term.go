package leader

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/join"
)

// A Term is one leadership.
type Term struct {
	Group        string
	FencingToken uint64    // greater than the tokens of all earlier terms of the group; it numbers the term
	Since        time.Time // by this process's clock
}

// A term is the state of a Term of this process. While the term is open, work may enter it. It is closed when this
// process resigns, and work that is inside goes on. If the term is lost, the work must stop.
type term struct {
	Term
	lease *core.Lease
	gate  gate.Gate // work and OnElected are inside

	workCtx         context.Context // ends when work must stop
	stopWork        context.CancelCauseFunc
	electedCtx      context.Context // context of OnElected; also ends when the term is closed
	endElected      context.CancelCauseFunc
	releaseContexts func()
}

// termKey is the context key of the term of an Elector, in the contexts of OnElected and of work.
type termKey struct{ *Elector }

// newTerm returns the term of a lease that was granted. It enters the gate for OnElected.
func newTerm(e *Elector, lease *core.Lease) *term {
	t := &term{Term: Term{e.group, lease.FencingToken(), time.Now()}, lease: lease}
	t.gate.Enter()

	// Both contexts are joined with the lease's, which reads the clock and so ends in time after a pause of the
	// process.
	leaseCtx := lease.Context()
	termCtx, stopWork := context.WithCancelCause(context.WithValue(leaseCtx, termKey{e}, t))
	workCtx, releaseWork := join.Contexts(termCtx, leaseCtx)
	openCtx, endElected := context.WithCancelCause(workCtx)
	electedCtx, releaseElected := join.Contexts(openCtx, leaseCtx)

	t.workCtx = workCtx
	t.stopWork = stopWork
	t.electedCtx = electedCtx
	t.endElected = endElected
	t.releaseContexts = func() {
		releaseWork()
		releaseElected()
	}
	return t
}

// isOpen reports whether the process leads in term t. It is false after the process has resigned. The context reads the
// clock, so isOpen is right even after a pause.
func (t *term) isOpen() bool { return t != nil && t.electedCtx.Err() == nil }

// waitForEnd waits until the process has resigned and all work has left, or until the term is lost. The error is nil or
// the loss. If work goes on for stuckAfter after the resignation, waitForEnd calls onStuck, and calls its result when
// the work has ended.
func (t *term) waitForEnd(stuckAfter time.Duration, onStuck func() (end func())) error {
	<-t.electedCtx.Done()
	t.closeEntry()

	timer := time.NewTimer(stuckAfter)
	defer timer.Stop()
	select {
	case <-t.gate.Empty():
		return t.lease.Lost()
	case <-t.lease.Context().Done():
		return t.lease.Lost()
	case <-timer.C:
	}

	end := onStuck()
	defer end()
	select {
	case <-t.gate.Empty():
	case <-t.lease.Context().Done():
	}
	return t.lease.Lost()
}

// closeEntry closes the term: OnElected must return, and no more work may enter.
func (t *term) closeEntry() {
	t.endElected(errResigned)
	t.gate.Close()
}
