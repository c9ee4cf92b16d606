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
// queues and servers. The key is one of core as it is, so tasks also exclude whatever else uses it on the same nodes with the
// same prefix (a call of core.Locker.Do, a route of httplock), and share its fencing tokens. By default a task has no key,
// and only deliveries of the same task exclude each other.
func WithKey(key KeyFunc) Option { return func(c *config) { c.key = key } }

// WithWaiters sets how many tasks may wait in place for held keys on each server, 0 or more. They are never all of the
// server's workers. The default is a quarter of them, rounded up: one of two to four workers, and none of one.
func WithWaiters(n int) Option { return func(c *config) { c.waiters = n } }

// WithGrace sets for how long a handler that does not return after its context has ended keeps its leases, 0 or more. Then
// they run out within the TTL, and another delivery may run beside it. The default is 2 minutes.
func WithGrace(d time.Duration) Option { return func(c *config) { c.grace = d } }

// WithRetention sets for how long the completion of a task is remembered, up to ten years. A delivery that comes
// later runs again. asynq's default delays pass 8 hours, the default, before the 13th retry. A record takes about 400
// bytes on each node, which keeps it for two hours longer.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

func (c *config) check(f *faults.List) {
	f.Check(c.key == nil, "the key function is nil (ByPayloadField and ByHeader need a name)")
	f.Check(c.waiters < 0 && c.waiters != aQuarter, "WithWaiters(%d): must not be negative", c.waiters)
	f.Check(c.grace < 0, "WithGrace(%v): must not be negative", c.grace)
}
