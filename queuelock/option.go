package queuelock

import (
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

type config struct {
	identity, key KeyFunc
	wait, grace   time.Duration
	waiters       *int // nil: a quarter of the server's concurrency
	retention     time.Duration
	maxRetry      int
	faults        faults.List
}

func newConfig(opts []Option) config {
	c := config{
		wait: time.Second, grace: 2 * time.Minute,
		retention: 96 * time.Hour, maxRetry: 25,
	}
	faults.Apply(&c.faults, opts, func(o Option) { o.apply(&c) })
	c.check()
	return c
}

// WithKey sets the key of what a task works on, such as an order: tasks with the same key run one at a time,
// across types, queues and servers. It is used as it is, so they also exclude whatever else uses that key on the same
// nodes and prefix (a call of core.Locker.Do, a route of httplock, a job of cronlock) and share its fencing tokens.
// Without it only deliveries of the same task keep out of each other's way.
func WithKey(key KeyFunc) Option { return option(func(c *config) { c.key = key }) }

// WithIdentity sets what makes two deliveries the same task, for tasks whose id does not tell: those that
// producers or aggregators enqueue anew under new ids. An empty identity is an error. Default: queue, task id
// and, where the producer called Stamp, execution id.
func WithIdentity(identity KeyFunc) Option { return option(func(c *config) { c.identity = identity }) }

// WithWait sets how long a task waits in place for a key that is held, before it is given back to be
// delivered again. Default 1s; 0 is not at all.
func WithWait(d time.Duration) Option { return option(func(c *config) { c.wait = d }) }

// WithWaiters sets how many workers of a server may wait in place at a time, so that a hot key does not
// stop everything else. Tasks on their last attempt wait beyond that: see the package documentation. Default:
// a quarter of the server's Concurrency, rounded down, so none below 4.
func WithWaiters(n int) Option { return option(func(c *config) { c.waiters = &n }) }

// WithGrace sets for how long a handler that does not return after its context has ended keeps its leases.
// Then they run out, within the TTL, and another delivery may run beside it. Default 2m.
func WithGrace(d time.Duration) Option { return option(func(c *config) { c.grace = d }) }

// WithRetention sets for how long it is remembered that a task was completed. It must be longer than the
// longest time between two deliveries of a task, which Configure checks. Default 96h: with asynq's default
// delays the 25th retry comes up to 92.4h after the attempt before. A record takes about 450 bytes on each
// node.
func WithRetention(d time.Duration) Option { return option(func(c *config) { c.retention = d }) }

// WithMaxRetry says how often tasks are retried at most (asynq.MaxRetry), for the check of the retention.
// Default 25, as in asynq.
func WithMaxRetry(n int) Option { return option(func(c *config) { c.maxRetry = n }) }

// lease are the options of the leases of tasks with this name.
func (c *config) lease(name string) []core.CallOption {
	return []core.CallOption{core.Linger(max(c.grace, 1)), core.Name(name), core.Retention(c.retention)}
}

func (c *config) check() {
	f := &c.faults
	f.Check(c.wait < 0, "wait is %v, must not be negative", c.wait)
	f.Check(c.grace < 0, "grace is %v, must not be negative", c.grace)
	f.Check(c.waiters != nil && *c.waiters < 0, "waiters are negative, must be 0 or more")
	f.Check(c.retention < time.Second, "retention is %v, must be at least 1s", c.retention)
	f.Check(c.maxRetry < 0, "max retry is %d, must not be negative", c.maxRetry)
}
