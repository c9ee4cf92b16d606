package cronlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
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

// A term is a Term with what runs in it.
type term struct {
	Term
	work   context.Context // of runs: ends when they must stop
	cancel context.CancelCauseFunc
	notice context.Context // of OnElected: ends when no new run starts
	leave  context.CancelCauseFunc

	asked  sync.Once     // closes resign
	resign chan struct{} // closed by Resign
	over   chan struct{} // closed when somebody else may lead

	// Under the Elector's lock:
	closed  bool          // no run starts any more
	running int           // runs, and OnElected
	idle    chan struct{} // closed once no run starts any more and none is left
}

// settle notices that the term has come to rest. Called with the lock.
func (t *term) settle() {
	if t.closed && t.running == 0 {
		close(t.idle)
	}
}

// A leading is the part of a run in a term. The zero value is that of a run without an elector.
type leading struct {
	term  *term
	leave func()
}

func noLeave() {}

// lost is why the term is over, if nobody resigned.
func (l leading) lost() error {
	if l.term == nil {
		return nil
	}
	return l.term.lost()
}

// over: the runs of the term have been told to stop.
func (l leading) over() bool { return l.term != nil && l.term.work.Err() != nil }

func (t *term) lost() error {
	cause := t.lease.Lost()
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLeadershipLost, cause)
}

// A termContext is a context that ends with the term. Its Err looks at the clock, as that of a lease does: after
// a pause it knows at the first look.
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

// within says that the caller is what the end of the term waits for.
func (t *term) within(ctx context.Context) bool {
	of, ok := ctx.Value(termKey{}).(*term)
	return ok && of == t
}
