package leader

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/gate"
)

// A Term is one leadership.
type Term struct {
	Group        string
	FencingToken uint64    // greater than that of every term of the group before; its number
	Since        time.Time // by this process's clock
	lease        *core.Lease
}

// ValidUntil returns until when nobody else can lead, unless a renewal extends it. See [core.Lease.ValidUntil].
func (t Term) ValidUntil() time.Time {
	if t.lease == nil {
		return time.Time{}
	}
	return t.lease.ValidUntil()
}

// A term is a Term with what goes on in it.
type term struct {
	Term
	gate   gate.Gate     // who is inside: work, and OnElected
	work   *ending       // of those inside: ends when they must stop
	notice *ending       // of OnElected: ends when nobody may enter any more
	over   chan struct{} // closed when somebody else may lead
}

// newTerm returns the term of a lease that was granted. OnElected is inside.
func newTerm(group string, lease *core.Lease) *term {
	t := &term{Term: Term{group, lease.FencingToken(), time.Now(), lease}, over: make(chan struct{})}
	t.gate.Enter()
	t.work = endWith(t.mark(context.Background()), lease) //nolint:forbidigo // lives as long as the term
	t.notice = endWith(t.work, lease)
	context.AfterFunc(lease.Context(), func() { t.work.end(cmp.Or(lost(lease), errResigned)) })
	return t
}

// leads looks at the clock, too.
func (t *term) leads() bool { return t != nil && t.notice.Err() == nil }

// last waits until the term was given up and nobody is inside any more, or until it was lost, which is the error.
func (t *term) last() error {
	<-t.notice.Done()
	t.shut()
	select {
	case <-t.gate.Empty():
	case <-t.lease.Context().Done():
	}
	return lost(t.lease)
}

// shut lets nobody enter any more.
func (t *term) shut() {
	t.notice.end(errResigned)
	t.gate.Close()
}

// mark makes a context one of the term.
func (t *term) mark(ctx context.Context) context.Context { return context.WithValue(ctx, t, t) }

// within reports whether the caller is what the end of the term waits for.
func (t *term) within(ctx context.Context) bool { return t != nil && ctx.Value(t) != nil }

// lost is why the leadership ended before it was given up.
func lost(lease *core.Lease) error {
	if lease.Lost() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLost, lease.Lost())
}

// An ending is a context that ends with a lease, as the lease's own does, but with an error of this package.
type ending struct {
	context.Context
	end   context.CancelCauseFunc
	lease *core.Lease
}

func endWith(ctx context.Context, lease *core.Lease) *ending {
	ctx, end := context.WithCancelCause(ctx)
	return &ending{ctx, end, lease}
}

// Err looks at the clock, because after a pause the lease's timer may not have fired yet.
func (c *ending) Err() error {
	if err := lost(c.lease); err != nil {
		c.end(err)
	}
	return c.Context.Err()
}

// Done looks at the clock as Err does.
func (c *ending) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}
