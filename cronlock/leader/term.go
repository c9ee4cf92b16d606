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

// A term is a Term with what goes on in it.
type term struct {
	Term
	lease           *core.Lease
	gate            gate.Gate       // work, and OnElected
	workCtx         context.Context // of those inside: ends when they must stop
	stopWork        context.CancelCauseFunc
	electedCtx      context.Context // of OnElected: ends when nobody may enter any more
	endElected      context.CancelCauseFunc
	releaseContexts func()
}

// insideKey is the key under which the contexts of the work of an Elector, and of its OnElected, have their term.
type termKey struct{ *Elector }

// newTerm returns the term of a lease that was granted. OnElected is inside.
func newTerm(e *Elector, lease *core.Lease) *term {
	t := &term{Term: Term{e.group, lease.FencingToken(), time.Now()}, lease: lease}
	t.gate.Enter()
	ctx, stop := context.WithCancelCause(context.WithValue(lease.Context(), termKey{e}, t))
	work, leaveWork := join.Contexts(ctx, lease.Context()) // looks at the clock, as the lease's context does
	ctx, yield := context.WithCancelCause(work)
	notice, leaveNotice := join.Contexts(ctx, lease.Context())
	t.workCtx, t.stopWork, t.electedCtx, t.endElected = work, stop, notice, yield
	t.releaseContexts = func() { leaveWork(); leaveNotice() }
	return t
}

// leads looks at the clock, too.
func (t *term) isOpen() bool { return t != nil && t.electedCtx.Err() == nil }

// last waits until the term was given up and nobody is inside any more, or until it was lost, which is the error. stuck is
// called if work goes on for a time after the term was given up, and what it returns when that has ended.
func (t *term) waitForEnd(after time.Duration, stuck func() (over func())) error {
	<-t.electedCtx.Done()
	t.closeEntry()
	late := time.NewTimer(after)
	defer late.Stop()
	select {
	case <-t.gate.Empty():
		return t.lease.Lost()
	case <-t.lease.Context().Done():
		return t.lease.Lost()
	case <-late.C:
	}
	defer stuck()()
	select {
	case <-t.gate.Empty():
	case <-t.lease.Context().Done():
	}
	return t.lease.Lost()
}

// shut lets nobody enter any more.
func (t *term) closeEntry() {
	t.endElected(errResigned)
	t.gate.Close()
}
