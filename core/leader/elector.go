package leader

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/callback"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/join"
)

// An Elector takes part in the election of one leader among the processes of a group. It campaigns in the background
// from New until Close, regardless of failures. It is safe for concurrent use.
type Elector struct {
	config
	locker   *core.Locker
	group    string
	key      string // held by the leader
	stuckKey string // held by a process that has resigned while its work goes on

	closing    context.Context // ends when Close is called
	close      context.CancelFunc
	background gate.Gate // campaign and watchLeader are inside

	// The observer and the logger may be slow, so the campaign only queues calls of them.
	events   callback.Queue
	logLines callback.Queue

	mu        sync.Mutex    // guards all fields below
	term      *term         // nil if this process does not lead
	nextTerm  chan struct{} // closed when the next term begins
	lastToken uint64        // fencing token of this process's last term
	ownErr    error         // reason for which this process cannot lead
	leaderErr error         // errLeaderStuck while another process has resigned and its work goes on
}

// New returns an Elector of the group and starts its campaign. Services that share nodes need groups of different
// names. Each Elector is a separate candidate, also within one process. After the death of a leader, its group has no
// leader for as long as the TTL of the Locker. After a resignation, the candidate that has waited longest leads within
// two round trips to the nodes.
func New(locker *core.Locker, group string, opts ...Option) (*Elector, error) {
	host, _ := os.Hostname()
	e := &Elector{
		group:    group,
		key:      core.Key("leader", group),
		stuckKey: core.Key("leader", group, "resigned"),
		nextTerm: make(chan struct{}),
	}
	e.candidate = cmp.Or(host, "unknown")
	e.onElected = func(context.Context, Term) {}

	var f faults.List
	faults.Set(&f, &e.config, opts)
	f.Check(locker == nil, "locker is nil")
	f.Check(group == "", "the group name is empty: it keeps services that share nodes apart")
	f.Check(!utf8.ValidString(group), "the group name %q is not valid UTF-8", group)
	f.Check(!utf8.ValidString(e.candidate), "the candidate name %q is not valid UTF-8", e.candidate)
	f.Check(e.candidate == "" || len(e.candidate) > maxCandidateLen,
		"the candidate name has %d bytes, must have 1 to %d", len(e.candidate), maxCandidateLen)
	f.Check(e.onElected == nil, "OnElected is nil")
	if err := f.Err("leader"); err != nil {
		return nil, err
	}

	// A campaign waits as long as another process leads, and a term has no time limit.
	var err error
	e.locker, err = locker.With(
		core.Name(group), core.Note(e.candidate), core.Detached(true), core.MaxWait(0), core.MaxHold(0))
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}

	closing, closeElector := context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	e.closing = closing
	e.close = closeElector
	e.background.Go(e.campaign)
	e.background.Go(e.watchLeader)
	return e, nil
}

// IsLeader returns nil if this process leads, and ErrNotLeader otherwise. It sends no request and does not wait.
func (e *Elector) IsLeader(context.Context) error {
	_, err := e.Term()
	return err
}

// Term returns the term in which this process leads, or ErrNotLeader. It sends no request and does not wait.
func (e *Elector) Term() (Term, error) {
	if t := e.currentTerm(); t.isOpen() {
		return t.Term, nil
	}
	return Term{}, ErrNotLeader
}

// Began returns a channel that is closed when the next term of this process begins.
func (e *Elector) Began() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nextTerm
}

// Enter lets work into the current term. The error is ErrNotLeader if this process does not lead. Call leave when the
// work has ended.
//
// The context that Enter returns has the values of ctx. It ends with ctx, when leave is called, and when the work must
// stop. The cause then matches core.ErrLost if the leadership was lost, and ErrNotLeader if Close stopped waiting.
// After this process has resigned, no other process leads until all work has left, so Enter is for work that ends on
// its own. Work that lasts as long as the leadership belongs in OnElected.
func (e *Elector) Enter(ctx context.Context) (work context.Context, leave func(), err error) {
	t := e.currentTerm()
	if !t.isOpen() {
		return ctx, func() {}, ErrNotLeader
	}
	entered := t.gate.Enter()
	if !entered {
		return ctx, func() {}, ErrNotLeader
	}

	work, stop := join.Contexts(context.WithValue(ctx, termKey{e}, t), t.workCtx)
	return work, sync.OnceFunc(func() {
		stop()
		t.gate.Leave()
	}), nil
}

// Resign starts to give up the leadership and returns at once. From then on Enter lets no more work into the term. When
// all work has left and OnElected has returned, another process may lead; this process campaigns again three seconds
// later. If this process does not lead, Resign does nothing.
func (e *Elector) Resign() {
	if t := e.currentTerm(); t != nil {
		t.closeEntry()
	}
}

// Close resigns, waits for the work of the term, and ends the campaign. If ctx ends first, Close ends the contexts of
// the work and returns an error. The leadership then ends when the work has ended.
//
// In OnElected, and in work of the term, Close would wait for itself. If ctx is the context of such a function, the
// error matches core.ErrInvalid, and nothing is closed. With any other ctx, Close cannot recognize the call, and waits
// until ctx ends.
func (e *Elector) Close(ctx context.Context) error {
	if ctx.Value(termKey{e}) != nil {
		return fmt.Errorf("leader: %w: Close is called in work of the term, or in OnElected, for which it would wait",
			core.ErrInvalid)
	}

	e.close()
	e.Resign()
	e.background.Close()
	err := e.background.Wait(ctx)
	if err == nil {
		return nil
	}

	if t := e.currentTerm(); t != nil {
		t.stopWork(errResigned)
	}
	return fmt.Errorf("leader: work of the term, or OnElected, has not ended: %w", err)
}

// Check supports health endpoints. It returns an error while this process cannot lead: when no quorum of nodes has
// answered for the TTL; from the loss of a term until its work has ended and a quorum has answered; and after the
// Elector or its Locker was closed.
//
// It also returns an error while no process can lead because the leader has resigned and work of its term goes on for
// longer than the TTL. If the leader is another process, Check reports this within a further TTL, and the end of it
// within two seconds after a process leads again. Check returns nil while another process leads. It sends no request
// and does not wait.
func (e *Elector) Check(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	switch {
	case e.ownErr != nil:
		return e.ownErr
	case e.closing.Err() != nil:
		return errClosed
	}
	return e.leaderErr
}

// currentTerm returns the term of this process, or nil.
func (e *Elector) currentTerm() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}
