package cronlock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

// An Elector takes part in the election of one leader among the processes of a group. It campaigns in the
// background from its construction until Close. It is a gocron.Elector, safe for concurrent use.
//
// Used alone, with gocron.WithDistributedElector, it is weaker than a Cron: ticks that fall due while nobody
// leads are lost, and a run that ignores its context overlaps with those of the next leader. Prefer
// WithElector.
type Elector struct {
	locks   *core.Locker
	group   string
	elected func(context.Context, Term)
	lost    func(Term, error)
	logger  *slog.Logger

	closing context.Context
	close   context.CancelFunc
	done    chan struct{} // closed when the campaign has ended

	mu   sync.Mutex
	term *term // nil: another process leads, or nobody
}

var _ gocron.Elector = (*Elector)(nil)

// An ElectorOption configures NewElector.
type ElectorOption interface{ applyElector(*Elector) }

type electorOption func(*Elector)

func (o electorOption) applyElector(e *Elector) { o(e) }

// OnElected sets what is called when this process has become leader. ctx ends when it does not lead any more
// or is about to resign. OnElected and OnLost are called in turn, never at once: OnLost not before OnElected
// has returned.
func OnElected(f func(ctx context.Context, t Term)) ElectorOption {
	return electorOption(func(e *Elector) { e.elected = f })
}

// OnLost sets what is called when a term has ended. The error is nil after Resign or Close, and then no run of
// the term is left; otherwise it matches ErrLeadershipLost, and runs have been told to stop. This process does
// not campaign again before OnLost has returned and the term's runs have ended.
func OnLost(f func(t Term, err error)) ElectorOption {
	return electorOption(func(e *Elector) { e.lost = f })
}

// NewElector returns an Elector of the group, and starts its campaign. Groups keep services apart that share
// nodes. Each Elector is a candidate of its own, also of those in one process or on one host. The TTL of locks
// says how long a group is without a leader after its leader died. After one that resigned, the candidate that has
// waited for longest leads within two round trips to the nodes.
func NewElector(locks *core.Locker, group string, opts ...ElectorOption) (*Elector, error) {
	e := &Elector{locks: locks, group: group, logger: slog.Default(), done: make(chan struct{}),
		elected: func(context.Context, Term) {}, lost: func(Term, error) {}}
	var f faults.List
	faults.Apply(&f, opts, func(o ElectorOption) { o.applyElector(e) })
	f.Check(locks == nil, "locks is nil")
	f.Check(group == "", "the group's name is empty: it keeps services apart that share nodes")
	f.Check(e.elected == nil || e.lost == nil, "a callback is nil")
	f.Check(e.logger == nil, "logger is nil (to be silent: slog.New(slog.DiscardHandler))")
	if err := f.Err("cronlock"); err != nil {
		return nil, err
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

// Term returns the term in which this process leads. The error is ErrNotLeader.
func (e *Elector) Term() (Term, error) {
	if t := e.current(); t != nil && t.leads() {
		return t.Term, nil
	}
	return Term{}, ErrNotLeader
}

// current returns the term under way, if there is one.
func (e *Elector) current() *term {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term
}

// enter lets a run into the term in which this process leads. Its context also ends with the term, with cause
// ErrLeadershipLost. Whoever gets no error owes a call of leave.
func (e *Elector) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	t := e.current()
	if t == nil || !t.leads() || !t.gate.Enter() {
		return nil, nil, ErrNotLeader
	}
	ctx, stop := core.Join(t.mark(ctx), t.work)
	return ctx, func() { stop(); t.gate.Leave() }, nil
}

// Task makes a gocron task of fn for a scheduler that has the Elector, and no Cron. Its context also ends when
// the leadership does, with cause ErrLeadershipLost, and Resign waits for it. Without leadership, fn does not
// run, and the error is ErrNotLeader.
func (e *Elector) Task(fn func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		ctx, leave, err := e.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		return fn(ctx)
	})
}

// Resign gives the leadership up: from now on this process starts no run, and when those under way and
// OnElected have ended, another process may lead. It returns then, or when ctx ends; in that case runs are told
// to stop, and the leadership ends when they have. Where this process does not lead, there is nothing to do. It
// takes part in the election again after some seconds.
//
// OnElected and runs that resign themselves must do so with the context that they got, or one derived from it:
// then Resign, and Close, does not wait for them, but returns at once.
func (e *Elector) Resign(ctx context.Context) error {
	t := e.current()
	if t == nil {
		return nil
	}
	t.shut()
	if t.within(ctx) {
		return nil
	}
	err := wait(ctx, t.over, "this term's runs, or OnElected, are still under way")
	if err != nil {
		t.stop(errResigned)
	}
	return err
}

// Close resigns, as Resign does, and ends the campaign for good. It also waits for OnLost, which therefore must
// not call it.
func (e *Elector) Close(ctx context.Context) error {
	e.mu.Lock()
	e.close()
	t := e.term
	e.mu.Unlock()
	err := e.Resign(ctx)
	if t.within(ctx) {
		return err
	}
	return cmp.Or(err, wait(ctx, e.done, "a callback, or a run of a lost term, has not returned"))
}

// retryMin and more, at random, passes before the next try where nobody can be elected.
const retryMin, retryMax = 250 * time.Millisecond, time.Second

// afterResign is how long a process that resigned leaves the field to others.
const afterResign = 3 * time.Second

// campaign stands for election until Close, and reigns whenever it is elected.
func (e *Elector) campaign() {
	defer close(e.done)
	for warned := false; e.closing.Err() == nil; {
		lease, err := e.locks.Acquire(e.closing, core.Key("cron-leader", e.group), core.Linger(core.Forever), core.Name(e.group),
			core.MaxWait(0), core.MaxHold(0), core.MinHold(0)) // that another process leads is no error, and terms have no end
		switch {
		case err == nil:
			warned = false
			e.reign(lease)
		case e.closing.Err() != nil:
		case errors.Is(err, core.ErrClosed):
			e.logger.Error("cronlock: no campaign for leadership any more: the Locker is closed", "group", e.group)
			return
		default:
			if !warned {
				e.logger.Warn("cronlock: no leader can be elected", "group", e.group, "err", err)
			}
			warned = true
			pause(e.closing, retryMin+rand.N(retryMax))
		}
	}
}

// reign leads for one term.
func (e *Elector) reign(lease *core.Lease) {
	t := newTerm(e.group, lease)
	if !e.accede(t) { // Close has found no term to wait for
		lease.Release(e.closing)
		return
	}
	e.event(EventElected)
	go t.hold(e.elected)
	<-t.notice.Done() // it was asked to resign, or the lease was lost
	t.shut()
	select {
	case <-t.gate.Empty():
	case <-lease.Context().Done():
	}
	if err := t.lost(); err != nil {
		e.depose(t, err)
		return
	}
	e.resign(t)
	pause(e.closing, afterResign)
}

// accede makes t the current term. It reports false once the Elector is closed.
func (e *Elector) accede(t *term) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing.Err() != nil {
		return false
	}
	e.term = t
	return true
}

// resign ends a term that has come to rest.
func (e *Elector) resign(t *term) {
	e.vacate(t)
	t.stop(errResigned)
	close(t.over)
	e.event(EventResigned)
	e.lost(t.Term, nil)
}

// depose ends a term whose lease was lost. Its runs may go on for a while after OnLost, but not into the next campaign.
func (e *Elector) depose(t *term, err error) {
	t.stop(err)
	close(t.over)
	<-t.returned
	e.event(EventDeposed)
	e.lost(t.Term, err)
	<-t.gate.Empty()
	e.vacate(t)
}

func (e *Elector) vacate(t *term) {
	t.lease.Release(e.closing)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = nil
}

func (e *Elector) event(kind core.EventKind) {
	e.locks.Event(e.closing, core.Event{Source: source, Name: e.group, Kind: kind})
}
