package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Acquire returns a lease on key, waiting for it until ctx ends, MaxWait has passed or the Locker is
// closed. ctx governs both the wait and the life of the lease, as in [database/sql.DB.BeginTx]: when it
// ends, the lease's context ends with it and the lease is not renewed any more. To bound the wait alone,
// use MaxWait or Detached.
//
// The error is an [*OpError] matching ErrHeld (once MaxWait has passed, or the deadline of ctx), ErrDone (the key is
// recorded as completed), ErrUnavailable (no quorum for as long as a TTL, or until MaxWait or the deadline), ErrClosed, or
// the context's error and cause; with a deadline, both of what was known and context.DeadlineExceeded. Or it matches
// ErrInvalid. Whatever the error, what nodes that can be reached granted has been released. Nodes in
// quarantine are waited for.
//
// A call that has to wait is in a queue on the nodes, which tell it when its turn has come; within a process
// callers stand in line. Both are in the order in which the calls began, as guarantee 9 of docs/guarantees.md has it.
//
// Options are for this call, as for a Locker made by With; one that is not for a single call, or does not suit the
// others, is an error that says so.
//
// Acquire is not reentrant: with a ctx that runs under a lease on key, the error matches ErrHeld at once. See Reentrant.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, false, opts)
}

// TryAcquire is Acquire without waiting for a holder: one round, at most the node timeout, and another for each
// of these that is needed: to settle the fencing token, to settle a completion record, to give back a part of
// the votes, to ask again with a longer max TTL that a node told of. Where contenders that came at the same time
// have a part of the votes each, it tries again, after a pause of at most the least retry delay, for five times in
// all, so that one of them gets the key. A key that anybody holds, that another caller of this process waits for,
// or whose turn belongs to somebody who has waited, for at most 150 ms after a hold, is ErrHeld.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, true, opts)
}

func (l *Locker) acquire(ctx context.Context, key string, try bool, opts []CallOption) (*Lease, error) {
	p, err := l.asked(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	if _, held := l.Holding(ctx, key); held {
		return nil, &OpError{Op: OpAcquire, Key: key, Err: errNoSecondLease, Held: HeldByCaller}
	}
	return l.acquireAs(ctx, key, try, p)
}

// asked is the policy of a call, if that is fit.
func (l *Locker) asked(ctx context.Context, key string, opts []CallOption) (*policy, error) {
	if err := l.fit(ctx); err != nil {
		return nil, err
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return l.p.of(opts)
}

func (l *Locker) acquireAs(ctx context.Context, key string, try bool, p *policy) (*Lease, error) {
	a := acquisition{call: call{e: l.e, p: p, key: key, resource: l.e.Keys.Resource(key), parent: ctx, tryOnly: try}}
	if p.detached {
		a.parent = context.WithoutCancel(ctx)
	}
	ctx, end := p.observe(ctx, OpAcquire, key, try, 0)
	a.observed, a.carries = end != nil, p.carries
	if hint := p.hint(ctx); hint != "" {
		a.carries = wire.Holder{Note: p.note, Name: p.name, Hint: hint}.Carried()
	}
	lease, err := a.run(ctx)
	if end != nil {
		untold := lease // which nobody gets where the observer panics
		defer func() { untold.Release(ctx) }()
		a.out.Err = err
		end(a.out)
		untold = nil
	}
	return lease, err
}

var (
	errByCaller      = fmt.Errorf("%w: the caller itself, under whose lease it asks again", ErrHeld)
	errNotReentrant  = fmt.Errorf("%w; core.Reentrant(true) lets Do and TryDo run under that lease", errByCaller)
	errNoSecondLease = fmt.Errorf("%w; only Do and TryDo can run under that lease (core.Reentrant), for the release or completion of a second would end it", errByCaller)
)

// Holding returns the lease on key that ctx runs under, of l or of a Locker that was derived from it or that it was derived
// from, also through leases on other keys: waiting for key would never end. A lease that is over does not count.
func (l *Locker) Holding(ctx context.Context, key string) (*Lease, bool) {
	for {
		c, ok := ctx.Value(leaseKey{}).(*leaseContext)
		if !ok {
			return nil, false
		}
		if lease := c.lease; lease.engine == l.e && lease.lock.Key == key && lease.ctx.Err() == nil {
			return lease, true
		}
		ctx = c.parent
	}
}

// An acquisition is what becomes of a call: a place in the local queue, then attempts until one succeeds.
type acquisition struct {
	call
	observed bool // somebody wants to know its outcome
	booked   bool // the wait is
	turns    int  // in a row that it shared with others

	lease *Lease // that the nodes were asked for on its behalf; nil = it asks by itself
	asked *node.Round

	recovering bool // the next attempt settles a completion record that is not decided
	last       result
	out        Outcome
}

func (a *acquisition) run(ctx context.Context) (*Lease, error) {
	e := a.e
	if err := ctx.Err(); err != nil {
		return nil, a.stopped(ctx)
	}
	if !e.gate.Enter() {
		return nil, a.fail(ErrClosed)
	}
	defer e.gate.Leave()

	wait := ctx
	if a.p.maxWait > 0 && !a.tryOnly {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, a.p.maxWait)
		defer cancel()
	}
	if !a.enter(ctx, wait) {
		return nil, a.stopped(ctx)
	}
	var lease *Lease
	defer func() { // also when an observer panics
		if a.wait != nil {
			a.wait.End()
			e.waits.End(a.wait)
		}
		if lease == nil {
			a.quit(ctx)
			e.lines.Leave(a.resource)
		}
	}()
	lease, err := a.contend(ctx, wait)
	return lease, err
}

// enter takes the key's turn in this process.
func (a *acquisition) enter(ctx, wait context.Context) bool {
	e := a.e
	if e.lines.TryEnter(a.resource) {
		return true
	}
	a.out.Contended = true
	if a.blocked(); a.tryOnly || a.outlasted(wait) {
		return false
	}
	since := e.Clock.Now()
	a.since = time.Now()
	s := &successor{call: a.call, ctx: ctx}
	s.turn.Ask = s.ask
	entered := e.lines.Enter(wait, e.Closing, a.resource, &s.turn)
	a.wait, a.lease, a.asked = s.wait, s.lease, s.asked
	if a.blocked(); a.last.silent != 0 {
		a.last.silent = max(a.last.silent, since)
	}
	return entered
}

// blocked notes why the key's turn in this process belongs to somebody else, or did until now.
func (a *acquisition) blocked() {
	res := a.e.lines.Why(a.resource)
	res.nodes = slices.Clone(res.nodes) // whose error has them may change them
	a.ended(res)
}

// ended notes how an attempt ended, or what those before in line know.
func (a *acquisition) ended(res result) {
	a.last = res
	a.out.HolderHint = cmp.Or(res.hint, a.out.HolderHint)
}

// contend tries until it has a lease or a reason to stop.
func (a *acquisition) contend(ctx, wait context.Context) (*Lease, error) {
	if a.silentForTTL() { // the one before had to find out for all
		return nil, a.fail(a.last.err)
	}
	for {
		a.out.Attempts++
		if a.wait != nil {
			a.wait.Trying()
		}
		res := a.try(ctx, wait)
		if res.lease == nil && wait.Err() != nil && a.last.err != nil {
			return nil, a.stopped(ctx) // a round cut short knows less than the one before
		}
		a.attempted(res)
		switch {
		case a.last.lease != nil:
			return a.last.lease, nil
		case wait.Err() != nil:
			return nil, a.stopped(ctx)
		case a.e.IsClosing():
			return nil, a.fail(ErrClosed)
		case a.triesAtOnce():
			continue
		case a.givesUp(wait):
			return nil, a.fail(a.last.err)
		}
		told := a.last
		told.nodes = slices.Clone(told.nodes)
		a.e.lines.Fails(a.resource, told)
		a.recovering = a.recovering && a.last.split()
		if !a.sleep(wait) {
			return nil, a.stopped(ctx)
		}
	}
}

// attempted notes how an attempt ended.
func (a *acquisition) attempted(res result) {
	res.at = a.e.Clock.Now()
	if res.lease == nil && (res.outcome == quorum.OutOfReach || res.outcome == quorum.Won) {
		res.silent = cmp.Or(a.last.silent, res.at)
	}
	a.ended(res)
	a.out.Nodes = res.nodes
	a.out.Contended = a.out.Contended || errors.Is(res.err, ErrHeld)
	if res.lease != nil {
		a.out.Token, a.out.Margin = res.lease.token, res.lease.left()
	}
}

// triesAtOnce reports whether the next attempt needs no pause: it settles a completion record, once, or uses what
// the last one learnt.
func (a *acquisition) triesAtOnce() bool {
	if a.last.outcome == quorum.Unsettled && !a.recovering {
		a.recovering = true
		return true
	}
	return a.last.again
}

// givesUp reports whether what the nodes said ends the call.
func (a *acquisition) givesUp(wait context.Context) bool {
	return errors.Is(a.last.err, ErrDone) || a.tryOnly && !a.undecided() || a.silentForTTL() || a.outlasted(wait)
}

// outlasted reports whether the key rests for longer than the call may wait.
func (a *acquisition) outlasted(wait context.Context) bool {
	until, ends := wait.Deadline()
	return ends && a.last.rests > 0 && a.last.rests-a.e.Clock.Now().Since(a.last.at) > time.Until(until)
}

// undecided reports whether the votes were split between contenders, so that none of them may have got the key.
func (a *acquisition) undecided() bool {
	return a.last.split() && a.out.Attempts < maxTries
}

// maxTries bounds how often TryAcquire asks while the votes are split.
const maxTries = 5

// silentForTTL reports whether no quorum has been reachable for a full TTL. A holder would have lost its lease by
// then, so a waiter gives up, too.
func (a *acquisition) silentForTTL() bool {
	return a.last.silent != 0 && a.e.Clock.Now().Since(a.last.silent) >= a.p.ttl
}

// join has the nodes listened to for when it is this call's turn.
func (a *acquisition) join() {
	if a.wait != nil && !a.booked {
		a.booked = true
		a.e.waits.Begin(a.wait, a.e.Keys.Bucket(a.key))
	}
}

// quit has the nodes leave the call out of their queues. Nobody waits for that: where it fails, those behind it wait
// for its turn, once.
func (a *acquisition) quit(ctx context.Context) {
	if a.wait == nil {
		return
	}
	own := &a.newLease().attempt
	own.unqueue()
	own.over()
	r := own.releasing(0)
	r.Send(ctx, quorum.All(len(a.e.Nodes)))
	r.Leave()
}

// stopped is the error of an acquisition that something other than the nodes put an end to.
func (a *acquisition) stopped(ctx context.Context) error {
	if err := endOf(ctx); err != nil {
		if ctx.Err() == context.DeadlineExceeded && a.last.err != nil && !a.last.open {
			failure := a.fail(a.last.err)
			failure.Ended = err
			return failure
		}
		return a.fail(err)
	}
	if a.e.IsClosing() {
		return a.fail(ErrClosed)
	}
	return a.fail(a.last.err) // try, or MaxWait has passed
}

func (a *acquisition) fail(err error) *OpError {
	failure := &OpError{Op: OpAcquire, Key: a.key, Err: err, Record: a.last.record, Nodes: a.last.nodes}
	held := errors.Is(err, ErrHeld)
	if held {
		failure.Held = a.last.held
	}
	if retry := a.last.retry; retry > 0 && (held || errors.Is(err, ErrUnavailable)) {
		failure.RetryAfter = max(retry-a.e.Clock.Now().Since(a.last.at), time.Millisecond)
	}
	return failure
}

// A call is a call of Acquire, and what its attempts have in common.
type call struct {
	e        *engine
	p        *policy
	key      string
	resource string // the key's name in Redis, and in the local queue
	parent   context.Context
	tryOnly  bool
	carries  string        // what the lease carries
	since    time.Time     // when it began, where it had to wait for its turn in this process
	wait     *queue.Waiter // from the first attempt on that failed; nil = none has
}

// newLease makes a lease to be, with an attempt of its own.
func (c *call) newLease() *Lease {
	lease := &Lease{engine: c.e, place: -1}
	lease.attempt.init(c.e, c.p, c.key, c.resource, c.carries)
	lease.ctx.lease, lease.ctx.parent = lease, c.parent
	if lease.waits = !c.tryOnly; lease.waits && c.wait == nil && !c.since.IsZero() {
		c.wait = queue.NewWaiter(lease.lock.Waiter(), wire.StampOf(c.since), quorum.Of(len(c.e.Nodes)))
	}
	lease.wait, lease.queued = c.wait, c.wait != nil
	return lease
}
