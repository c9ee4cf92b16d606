package cronlock

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
	FencingToken uint64 // greater than that of every term of the group before; its id
	lease        *core.Lease
}

// ValidUntil returns until when nobody else can lead, unless a renewal extends it. See core.Lease.ValidUntil.
func (t Term) ValidUntil() time.Time { return t.lease.ValidUntil() }

// errResigned is what a term ends with by Resign or Close.
var errResigned = fmt.Errorf("%w: resigned", ErrLeadershipLost)

// A term is a Term with what runs in it. A run without an elector has the nil term, which never ends.
type term struct {
	Term
	gate     gate.Gate               // who is inside: runs, and OnElected
	work     context.Context         // of runs: ends when they must stop
	stop     context.CancelCauseFunc // ends work
	notice   context.Context         // of OnElected: ends when no run starts any more
	warn     context.CancelCauseFunc // ends notice
	returned chan struct{}           // closed when OnElected has returned
	over     chan struct{}           // closed when somebody else may lead
}

// newTerm returns the term of a lease that was granted. OnElected is inside.
func newTerm(group string, lease *core.Lease) *term {
	t := &term{Term: Term{Group: group, FencingToken: lease.FencingToken(), lease: lease},
		returned: make(chan struct{}), over: make(chan struct{})}
	t.gate.Enter()
	t.work, t.stop = t.context(t.mark(context.Background())) //nolint:forbidigo // lives as long as the term
	t.notice, t.warn = t.context(t.work)
	context.AfterFunc(lease.Context(), func() { t.stop(cmp.Or(t.lost(), errResigned)) })
	return t
}

// hold is the part of OnElected in the term.
func (t *term) hold(elected func(context.Context, Term)) {
	defer t.gate.Leave()
	defer close(t.returned)
	elected(t.notice, t.Term)
}

// leads looks at the clock, too.
func (t *term) leads() bool { return t.notice.Err() == nil }

// shut lets no run start in the term any more.
func (t *term) shut() {
	t.warn(errResigned)
	t.gate.Close()
}

// lost is why the term is over, if nobody resigned.
func (t *term) lost() error {
	if t.lease.Lost() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLeadershipLost, t.lease.Lost())
}

// context makes one that ends with the term.
func (t *term) context(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	return &termContext{ctx, t, cancel}, cancel
}

// A termContext looks at the clock in Err, as that of a lease does, but ends with an error of its own.
type termContext struct {
	context.Context
	t      *term
	cancel context.CancelCauseFunc
}

func (c *termContext) Err() error {
	if err := c.t.lost(); err != nil {
		c.cancel(err)
	}
	return c.Context.Err()
}

type termKey struct{}

// mark makes a context one of the term.
func (t *term) mark(ctx context.Context) context.Context { return context.WithValue(ctx, termKey{}, t) }

// within reports whether the caller is what the end of the term waits for.
func (t *term) within(ctx context.Context) bool {
	of, ok := ctx.Value(termKey{}).(*term)
	return ok && of == t
}
