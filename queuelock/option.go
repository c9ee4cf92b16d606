package queuelock

import (
	"time"

	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New and With.
type Option func(*config)

type config struct {
	key              KeyFunc
	waiters          int
	grace, retention time.Duration
}

// aQuarter stands for a quarter of the server's workers.
const aQuarter = -1

// WithKey sets the key of what a task works on, such as an order: tasks with the same key run one at a time, across types,
// queues and servers. The key is one of core without a prefix of its own, so tasks also exclude other users of the key on
// the same nodes (core.Locker.Do, a route of httplock), and share its fencing tokens. Without WithKey (the default), only
// redeliveries of the same task exclude each other.
func WithKey(key KeyFunc) Option { return func(c *config) { c.key = key } }

// WithWaiters sets how many tasks may wait in place for held keys on each server, 0 or more, but never all of its workers.
// Other tasks whose key is held are given back to asynq. The default is a quarter of the workers, rounded up: one of two to
// four workers, and none of one.
func WithWaiters(n int) Option { return func(c *config) { c.waiters = n } }

// WithGrace sets how long a handler keeps its leases after its context has ended, 0 or more. If it has not returned by
// then, they expire within the TTL, and another delivery may run beside it. The default is 2 minutes.
func WithGrace(d time.Duration) Option { return func(c *config) { c.grace = d } }

// WithRetention sets how long the completion of a task is remembered, at most ten years. A later delivery runs again. A
// record takes about 400 bytes on each node, which keeps it for two hours more. The default is 8 hours: asynq's default
// delays reach that with the 13th retry.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

func (c *config) check(f *faults.List) {
	f.Check(c.key == nil, "the key function is nil (ByPayloadField and ByHeader need a name)")
	f.Check(c.waiters < 0 && c.waiters != aQuarter, "WithWaiters(%d): must not be negative", c.waiters)
	f.Check(c.grace < 0, "WithGrace(%v): must not be negative", c.grace)
}
