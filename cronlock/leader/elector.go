package leader

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/join"
)

// An Elector takes part in the election of one leader among the processes of a group. It campaigns in the background from
// its construction until Close, whatever fails meanwhile. It is safe for concurrent use.
type Elector struct {
	config
	locker *core.Locker
	key    string // of the leadership

	closing context.Context
	close   context.CancelFunc
	done    chan struct{} // closed when the campaign has ended

	mu      sync.Mutex
	term    *term         // nil: another process leads, or nobody
	next    chan struct{} // closed when the next term begins
	own     uint64        // fencing token of the last one
	trouble error         // why this process cannot lead
}

// New returns an Elector of the group, and starts its campaign. Groups keep services apart that share nodes. Each Elector
// is a candidate of its own, also of those in one process or on one host. The TTL of the Locker says how long a group is
// without a leader after its leader died. After one that resigned, the candidate that has waited for longest leads within
// two round trips to the nodes.
func New(locker *core.Locker, group string, opts ...Option) (*Elector, error) {
	e := &Elector{config: defaults(group), key: core.Key("cron-leader", group), done: make(chan struct{}), next: make(chan struct{})}
	var f faults.List
	faults.Apply(&f, opts, func(o Option) { o.apply(&e.config) })
	f.Check(locker == nil, "locker is nil")
	e.check(&f)
	if err := f.Err("leader"); err != nil {
		return nil, err
	}
	// That another process leads is no error, and terms have no end.
	var err error
	if e.locker, err = locker.With(core.Name(group), core.Note(e.identity), core.Detached(true),
		core.MaxWait(0), core.MaxHold(0)); err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	e.closing, e.close = context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	go e.campaign()
	return e, nil
}

// IsLeader returns nil if this process leads, and ErrNotLeader if not. It asks nobody and does not wait.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.Term()
	return err
}

// Term returns the term in which this process leads. The error is ErrNotLeader. It asks nobody and does not wait.
func (e *Elector) Term() (Term, error) {
	if t := e.current(); t.leads() {
		return t.Term, nil
	}
	return Term{}, ErrNotLeader
}

// Enter lets work into the term in which this process leads. The error is ErrNotLeader where it does not. The context that
// Enter returns has the values of ctx; it ends with ctx, when leave is called, and when the work must stop: because the
// leadership was lost, or a Resign could not wait any longer. Its cause then matches [ErrLost]. A term that this process
// gives up goes on until all who entered have left, so Enter is for work that ends by itself: what goes on for as long as
// this process leads belongs into OnElected. Call leave when the work is over.
func (e *Elector) Enter(ctx context.Context) (work context.Context, leave func(), err error) {
	t := e.current()
	if !t.leads() || !t.gate.Enter() {
		return ctx, func() {}, ErrNotLeader
	}
	work, stop := join.Contexts(t.mark(ctx), t.work)
	return work, sync.OnceFunc(func() {
		stop()
		t.gate.Leave()
	}), nil
}

// Wait waits until this process leads, or returns the cause of the end of ctx. Who is told so may find the term over
// again: Enter says.
func (e *Elector) Wait(ctx context.Context) error {
	for {
		e.mu.Lock()
		next := e.next
		e.mu.Unlock()
		if e.IsLeader(ctx) == nil {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.closing.Done():
			return errClosed
		}
	}
}

// Resign gives the leadership up: from now on nobody enters the term, and when those inside have left and OnElected has
// returned, another process may lead. It returns then, or when ctx ends; in that case work is told to stop, and the
// leadership ends when it has. Where this process does not lead, there is nothing to do. It takes part in the election
// again after some seconds.
//
// OnElected and work that resign themselves must do so with the context that they got, or one derived from it: then
// Resign, and Close, does not wait for them, but returns at once.
func (e *Elector) Resign(ctx context.Context) error {
	t := e.current()
	if t == nil {
		return nil
	}
	t.shut()
	if t.within(ctx) {
		return nil
	}
	err := wait(ctx, t.over, "work of this term, or OnElected, is still under way")
	if err != nil {
		t.work.end(errResigned)
	}
	return err
}

// Close resigns, as Resign does, and ends the campaign for good. It also waits for OnLost, which therefore must not call
// it.
func (e *Elector) Close(ctx context.Context) error {
	e.mu.Lock()
	e.close()
	t := e.term
	e.mu.Unlock()
	err := e.Resign(ctx)
	if t.within(ctx) {
		return err
	}
	return cmp.Or(err, wait(ctx, e.done, "a callback, or work of a lost term, has not returned"))
}

// Check is a probe for health endpoints: it fails while this process cannot lead. That is so when no quorum of nodes has
// answered it for as long as the TTL; from the loss of a term until a quorum answers, which is asked when the term's work
// has ended; and once the Elector or its Locker is closed. That another process leads is no failure. Check asks nobody and
// does not wait.
func (e *Elector) Check(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trouble == nil && e.closing.Err() != nil {
		return errClosed
	}
	return e.trouble
}

// current returns the term under way, if there is one.
func (e *Elector) current() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

// wait waits until done is closed; where ctx ends before, the error says what is missing.
func wait(ctx context.Context, done <-chan struct{}, missing string) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("leader: %s: %w", missing, context.Cause(ctx))
	}
}
