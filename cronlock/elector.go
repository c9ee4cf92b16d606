package cronlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
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

	mu    sync.Mutex
	term  *term // nil: another process leads, or nobody
	crons map[*Cron]struct{}
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
	e := &Elector{group: group, logger: slog.Default(), done: make(chan struct{}), crons: map[*Cron]struct{}{},
		elected: func(context.Context, Term) {}, lost: func(Term, error) {}}
	var faults []error
	if locks == nil {
		faults = append(faults, errors.New("locks is nil"))
	}
	if group == "" {
		faults = append(faults, errors.New("the group's name is empty: it keeps services apart that share nodes"))
	}
	for _, o := range opts {
		if o == nil {
			faults = append(faults, errors.New("an option is nil"))
			continue
		}
		o.applyElector(e)
	}
	if e.elected == nil || e.lost == nil {
		faults = append(faults, errors.New("a callback is nil"))
	}
	if e.logger == nil {
		faults = append(faults, errors.New("logger is nil (to be silent: slog.New(slog.DiscardHandler))"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	named, err := locks.With(core.WithDetachedLease(true), core.WithName(group), core.WithRetryDelay(watchMin, watchMax),
		core.WithMaxWait(0), core.WithMaxHold(0), core.WithMinHold(0)) // that another process leads is no error, and terms have no end
	if err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	e.locks = named
	e.closing, e.close = context.WithCancel(context.Background())
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leads() {
		return Term{}, ErrNotLeader
	}
	return e.term.Term, nil
}

// leads looks at the clock, too. Called with the lock.
func (e *Elector) leads() bool {
	return e.term != nil && !e.term.closed && e.term.lease.Context().Err() == nil
}

// lead books a run in the current term, if this process leads or need not.
func (c *Cron) lead() (leading, error) {
	if c.elector == nil {
		return leading{leave: noLeave}, nil
	}
	return c.elector.enter()
}

func (e *Elector) enter() (leading, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leads() {
		return leading{leave: noLeave}, ErrNotLeader
	}
	t := e.term
	t.running++
	return leading{term: t, leave: sync.OnceFunc(func() { e.depart(t) })}, nil
}

func (e *Elector) depart(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.running--
	t.settle()
}

// Task makes a gocron task of fn for a scheduler that has the Elector, and no Cron. Its context also ends when
// the leadership does, with cause ErrLeadershipLost, and Resign waits for it. Without leadership, fn does not
// run, and the error is ErrNotLeader.
func (e *Elector) Task(fn func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		lead, err := e.enter()
		if err != nil {
			return err
		}
		defer lead.leave()
		ctx, stop := core.Join(lead.term.mark(ctx), lead.term.work)
		defer stop()
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
	e.mu.Lock()
	t := e.term
	e.mu.Unlock()
	if t == nil {
		return nil
	}
	t.asked.Do(func() { close(t.resign) })
	e.end(t)
	if t.within(ctx) {
		return nil
	}
	select {
	case <-t.over:
		return nil
	case <-ctx.Done():
		t.cancel(errResigned)
		return fmt.Errorf("cronlock: this term's runs, or OnElected, are still under way: %w", context.Cause(ctx))
	}
}

// end lets no run start in the term any more.
func (e *Elector) end(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.leave(errResigned)
		t.settle()
	}
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
	select {
	case <-e.done:
		return err
	case <-ctx.Done():
		if err == nil {
			err = fmt.Errorf("cronlock: a callback, or a run of a lost term, has not returned: %w", context.Cause(ctx))
		}
		return err
	}
}

// afterResign is how long a process that resigned leaves the field to others.
const afterResign = 3 * time.Second

func (e *Elector) campaign() {
	defer close(e.done)
	troubled := false
	for e.closing.Err() == nil {
		lease, err := e.locks.Acquire(e.closing, "cron-leader/"+escape(e.group))
		switch {
		case err == nil:
			troubled = false
			if e.serve(lease) {
				pause(e.closing, afterResign)
			}
		case e.closing.Err() != nil:
		case errors.Is(err, core.ErrClosed):
			e.logger.Error("cronlock: no campaign for leadership any more: the Locker is closed", "group", e.group)
			return
		default:
			if !troubled {
				e.logger.Warn("cronlock: no leader can be elected", "group", e.group, "err", err)
			}
			troubled = true
			pause(e.closing, watchMin+rand.N(watchMax))
		}
	}
}

// serve is one term. It says whether it ended by resignation.
func (e *Elector) serve(lease *core.Lease) (resigned bool) {
	t := &term{Term: Term{Group: e.group, FencingToken: lease.FencingToken(), lease: lease}, running: 1, // OnElected
		resign: make(chan struct{}), over: make(chan struct{}), idle: make(chan struct{})}
	work, cancel := context.WithCancelCause(t.mark(context.Background()))
	t.work, t.cancel = &termContext{work, t, cancel}, cancel
	notice, leave := context.WithCancelCause(work)
	t.notice, t.leave = &termContext{notice, t, leave}, leave
	e.mu.Lock()
	if e.closing.Err() != nil { // Close has found no term to wait for
		e.mu.Unlock()
		lease.Release(e.closing)
		return true
	}
	e.term = t
	crons := make([]*Cron, 0, len(e.crons))
	for c := range e.crons {
		crons = append(crons, c)
	}
	e.mu.Unlock()
	stop := context.AfterFunc(lease.Context(), func() { t.cancel(t.lost()) })
	e.event(EventElected)
	returned := make(chan struct{})
	go func() {
		defer e.depart(t)
		defer close(returned)
		e.elected(t.notice, t.Term)
	}()
	for _, c := range crons {
		c.catchUp()
	}

	select {
	case <-lease.Context().Done():
	case <-t.resign:
	case <-e.closing.Done():
	}
	if lease.Context().Err() == nil {
		e.end(t)
		select {
		case <-t.idle:
		case <-lease.Context().Done(): // lost while the last runs were ending
		}
	}
	stop()
	if resigned = lease.Context().Err() == nil; !resigned {
		err := t.lost()
		t.cancel(err)
		e.end(t)
		close(t.over)
		<-returned
		e.event(EventDeposed)
		e.lost(t.Term, err)
		<-t.idle
	}
	lease.Release(e.closing)
	e.mu.Lock()
	e.term = nil
	e.mu.Unlock()
	if resigned {
		close(t.over)
		t.cancel(errResigned)
		e.event(EventResigned)
		e.lost(t.Term, nil)
	}
	return resigned
}

func (e *Elector) event(kind string) {
	e.locks.Event(e.closing, core.Event{Source: source, Name: e.group, Kind: kind})
}

// follow has the Cron catch up when this process becomes leader.
func (e *Elector) follow(c *Cron) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.crons[c] = struct{}{}
}

func (e *Elector) unfollow(c *Cron) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.crons, c)
}
