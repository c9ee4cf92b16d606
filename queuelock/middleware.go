package queuelock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Middleware runs the tasks of asynq servers under leases. It is safe for concurrent use and may serve several
// servers.
type Middleware struct {
	config
	*shared
	locker *core.Locker
}

// A shared has the state of all Middlewares that are derived from one New. It is safe for concurrent use.
type shared struct {
	loggedProblems sync.Map     // the configuration errors that were logged
	foreignTypes   sync.Map     // the types of task for which EventForeignID was reported
	foreignCount   atomic.Int32 // the size of foreignTypes
}

// New returns a Middleware that acquires its leases from locker. The caller must close locker after the servers have
// shut down. If a process dies, its keys stay taken for the TTL of locker. The error names every invalid argument.
func New(locker *core.Locker, opts ...Option) (*Middleware, error) {
	defaults := config{key: noKey, waiters: quarterOfWorkers, grace: 2 * time.Minute, retention: 8 * time.Hour}
	m := &Middleware{config: defaults, shared: &shared{}, locker: locker}
	return m.derive(opts)
}

// With returns a Middleware with the options of m and opts, for some of the handlers of a server:
//
//	mux.Handle("report:", reports.Middleware(handler))
//
// A server that m was configured for needs no other Configure. WithWaiters must be among the options of New.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	derived, err := m.derive(opts)
	if err == nil && derived.waiters != m.waiters {
		return nil, errors.New("queuelock: WithWaiters belongs to the whole server, " +
			"and not to some of its handlers: give it to New")
	}
	return derived, err
}

// derive returns a Middleware with the options of m and opts, which it validates.
func (m *Middleware) derive(opts []Option) (*Middleware, error) {
	var f faults.List
	derived := &Middleware{config: m.config, shared: m.shared, locker: m.locker}
	faults.Set(&f, &derived.config, opts)
	derived.check(&f)

	// core validates the retention.
	locker, err := m.locker.With(core.Detached(false), core.MaxHold(0), core.Retention(derived.retention))
	f.Check(err != nil, "%w", err)
	f.Check(strings.HasPrefix(m.locker.KeyPrefix(), "asynq:"),
		"the locker's key prefix, asynq:…, belongs to asynq: choose another (core.WithKeyPrefix)")
	derived.locker = locker
	return derived, f.Err("queuelock")
}

// logOnce logs a configuration error, unless it was logged before.
func (m *Middleware) logOnce(problem string) {
	_, logged := m.loggedProblems.LoadOrStore(problem, true)
	if !logged {
		m.locker.Logger().Error(problem)
	}
}

// An Option configures New and With.
type Option func(*config)

// A config holds the options of a Middleware.
type config struct {
	key         KeyFunc
	hasKey      bool            // WithKey was given
	concurrency ConcurrencyFunc // nil: one at a time
	constant    int             // the number of WithConcurrency
	isByTask    bool            // WithConcurrencyFunc was given
	waiters     int             // per server
	grace       time.Duration
	retention   time.Duration
}

// quarterOfWorkers is the value of config.waiters for a quarter of the server's workers.
const quarterOfWorkers = -1

// WithKey sets the key of a task's subject, such as an order: tasks with the same key run one at a time, across types,
// queues and servers. It is a key of core without an additional prefix, so tasks also exclude other users of the key on
// the same nodes (core.Locker.Do, a route of httplock), and share its fencing tokens. Without WithKey (the default),
// only redeliveries of the same task exclude each other.
func WithKey(key KeyFunc) Option {
	return func(c *config) {
		c.key = key
		c.hasKey = true
	}
}

// A ConcurrencyFunc returns how many tasks with the key of t may run at a time, 1 to [semaphore.MaxPermits]. After an
// error the task is not run, and counts as failed.
type ConcurrencyFunc func(ctx context.Context, t *asynq.Task) (int, error)

// WithConcurrency lets k tasks with the same key (WithKey) run at a time, across types, queues and servers, instead of
// one: at most two imports per customer, at most five calls to an API. It is a semaphore (package core/semaphore) on the
// key, and its rules hold: a caller of core.Locker.Do on the key counts as one, and while servers with different k run, as
// during a release, no more tasks run than the largest k. Redeliveries of a task still exclude each other, and its
// completion is remembered as without the option. [Cooldown] keeps the slot of the task taken, not the key. A key has at
// most 494 bytes ([semaphore.MaxKey]) instead of 512: a task with a longer one is not run, and counts as failed
// ([EventNoKey]). The default is 1.
func WithConcurrency(k int) Option {
	return func(c *config) {
		c.concurrency = func(context.Context, *asynq.Task) (int, error) { return k, nil }
		c.constant = k
	}
}

// WithConcurrencyFunc is WithConcurrency with a number that depends on the task, such as one for each plan of a customer.
func WithConcurrencyFunc(k ConcurrencyFunc) Option {
	return func(c *config) {
		c.concurrency = k
		c.constant = 1
		c.isByTask = true
	}
}

// WithWaiters sets how many tasks may wait in place for held keys on each server, 0 or more, but never all of its
// workers. Other tasks with a held key are given back to asynq; last attempts wait without a place. The default is a
// quarter of the workers, rounded up: one place for two to four workers, and none for a single worker.
func WithWaiters(n int) Option { return func(c *config) { c.waiters = n } }

// WithGrace sets how long a handler keeps its leases after its context has ended, 0 or more. If it has not returned by
// then, they expire within the TTL, and another delivery may run beside it. The default is 2 minutes.
func WithGrace(d time.Duration) Option { return func(c *config) { c.grace = d } }

// WithRetention sets how long the completion of a task is remembered, at most ten years. A later delivery runs again. A
// record takes about 400 bytes on each node, which keeps it for two hours more. The default is 8 hours: asynq's default
// delays reach that with the 13th retry.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// check records each option that is out of range.
func (c *config) check(f *faults.List) {
	f.Check(c.key == nil, "the key function is nil (ByPayloadField and ByHeader need a name)")
	f.Check(c.isByTask && c.concurrency == nil, "the function of WithConcurrencyFunc is nil")
	isLimited := c.concurrency != nil
	outOfRange := c.constant < 1 || c.constant > semaphore.MaxPermits
	f.Check(isLimited && outOfRange, "WithConcurrency(%d): must be between 1 and %d", c.constant, semaphore.MaxPermits)
	f.Check(isLimited && !c.hasKey, "WithConcurrency needs WithKey: it says how many tasks of a key may run at a time")
	f.Check(c.waiters < 0 && c.waiters != quarterOfWorkers, "WithWaiters(%d): must not be negative", c.waiters)
	f.Check(c.grace < 0, "WithGrace(%v): must not be negative", c.grace)
}
