package queuelock

import (
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New.
type Option interface{ apply(*config) }

// A TaskOption is what applies to tasks: given to New to those of all types, given to ForType to those of some.
type TaskOption interface {
	Option
	applyTask(*policy)
}

type (
	option     func(*config)
	taskOption func(*policy)
)

func (o option) apply(c *config)         { o(c) }
func (o taskOption) apply(c *config)     { o(&c.policy) }
func (o taskOption) applyTask(p *policy) { o(p) }

type config struct {
	policy // of types that no pattern is for; with the faults of all
	types  []typeOptions
}

type typeOptions struct {
	pattern string
	opts    []TaskOption
	policy  policy
}

// A policy is what applies to tasks of one type.
type policy struct {
	identity, key          KeyFunc
	shared                 bool // identities count across types
	conflict               Conflict
	nilAfterCancel         Outcome
	wait, grace, retention time.Duration
	faults                 faults.List
}

func newConfig(opts []Option) config {
	c := config{policy: policy{wait: 5 * time.Minute, grace: 2 * time.Minute, retention: 8 * time.Hour}}
	faults.Apply(&c.faults, opts, func(o Option) { o.apply(&c) })
	c.check()
	base := c.policy
	base.faults = nil
	patterns := map[string]bool{}
	for i := range c.types {
		t := &c.types[i]
		t.policy = base
		faults.Apply(&t.policy.faults, t.opts, func(o TaskOption) { o.applyTask(&t.policy) })
		t.policy.check()
		c.faults.Check(t.pattern == "", "a pattern of ForType is empty: options for all types are options of New")
		c.faults.Check(patterns[t.pattern], "ForType(%q) is there twice", t.pattern)
		patterns[t.pattern] = true
		for _, fault := range t.policy.faults {
			c.faults.Check(true, "ForType(%q): %w", t.pattern, fault)
		}
	}
	return c
}

// of returns what applies to tasks of a type.
func (c *config) of(typ string) *policy {
	p, longest := &c.policy, 0
	for i := range c.types {
		if t := &c.types[i]; len(t.pattern) > longest && strings.HasPrefix(typ, t.pattern) {
			p, longest = &t.policy, len(t.pattern)
		}
	}
	return p
}

// ForType has tasks of some types go by options of their own, on top of those for all types: the types that begin with
// pattern, and where several patterns fit, the longest decides, as in [asynq.ServeMux]. There are no wildcards, and a
// pattern that fits no type is not noticed.
func ForType(pattern string, opts ...TaskOption) Option {
	return option(func(c *config) { c.types = append(c.types, typeOptions{pattern: pattern, opts: opts}) })
}

// WithKey sets the key of what a task works on, such as an order: tasks with the same key run one at a time,
// across types, queues and servers. It is used as it is, so they also exclude whatever else uses that key on the same
// nodes and prefix (a call of core.Locker.Do, a route of httplock) and share its fencing tokens.
// Without it only deliveries of the same task keep out of each other's way.
func WithKey(key KeyFunc) TaskOption {
	return taskOption(func(p *policy) {
		p.key = key
		p.faults.Check(key == nil, "the key function is nil (ByPayloadField and ByHeader need a name)")
	})
}

// WithIdentity sets what makes two tasks of one type the same task, for those whose id does not tell: that producers or
// aggregators enqueue anew under new ids. An empty identity is an error. Default: queue, task id and, where the producer
// called Stamp, execution id. Say with WithRetention for how long a completed one is to be known again.
func WithIdentity(identity KeyFunc) TaskOption { return withIdentity(identity, false) }

// WithSharedIdentity is WithIdentity for tasks that are the same task if they have the same identity, whatever their
// types. Of the two options the last one counts.
func WithSharedIdentity(identity KeyFunc) TaskOption { return withIdentity(identity, true) }

func withIdentity(identity KeyFunc, shared bool) TaskOption {
	return taskOption(func(p *policy) {
		p.identity, p.shared = identity, shared
		p.faults.Check(identity == nil, "the identity function is nil (ByPayloadField and ByHeader need a name)")
	})
}

// A Conflict is what becomes of a task whose key (WithKey) is held by another one.
type Conflict uint8

const (
	// Wait waits in place for up to WithWait, as long as the server has another worker to spare, and then comes back.
	Wait Conflict = iota
	// ComeBack gives the task back at once, to be delivered again about when its turn comes.
	ComeBack
	// Skip drops the task, with EventSkipped: asynq is told that it has succeeded. So it does where the holder has died,
	// until its lease has run out. A second delivery of the same task is not a conflict, and comes back.
	Skip
)

// WithConflict sets what becomes of a task whose key ([WithKey]) is held; one without a key is in nobody's way. Default Wait.
func WithConflict(c Conflict) TaskOption { return taskOption(func(p *policy) { p.conflict = c }) }

// WithWait sets for how long a task waits in place at most for a key that is held. It gives way sooner where its server
// has no other worker free, and waits no longer than leaves its handler half of the task's timeout, and as much as
// handlers of its type have taken of late. Tasks on their last attempt wait in any case: see the package documentation.
// Default 5m.
func WithWait(d time.Duration) TaskOption { return taskOption(func(p *policy) { p.wait = d }) }

// WithGrace sets for how long a handler that does not return after its context has ended keeps its leases.
// Then they run out, within the TTL, and another delivery may run beside it. Default 2m.
func WithGrace(d time.Duration) TaskOption { return taskOption(func(p *policy) { p.grace = d }) }

// WithRetention sets for how long it is remembered that a task was completed, on top of the time that asynq may take to
// deliver it again: three minutes where a worker vanished, and what RetryDelayFunc says; ten years in all at most. So it is how long a delivery may
// lie in a queue because of a backlog: what comes later runs again. With an identity, it is how long a producer may
// take to enqueue the same task again. Default 8h. A record takes about 400 bytes on each node, and is there for two hours
// longer.
func WithRetention(d time.Duration) TaskOption {
	return taskOption(func(p *policy) { p.retention = d })
}

// An Outcome is what a handler has done.
type Outcome uint8

const (
	Done    Outcome = iota // its work
	NotDone                // it is to run again
)

// WithNilAfterCancel sets what it means that a handler returns nil after its context has ended. Nobody can tell from
// outside whether it had finished its work by then, or saw the end of its context and left. Done, the default, completes
// the task; with NotDone asynq runs it again. EventNilAfterCancel and a line in the log say so in either case.
func WithNilAfterCancel(o Outcome) TaskOption {
	return taskOption(func(p *policy) { p.nilAfterCancel = o })
}

// maxRetention is the longest that core keeps a record.
const maxRetention = 10 * 365 * 24 * time.Hour

// leaseOptions are the options of the leases of tasks with this name.
func (p *policy) leaseOptions(name string, redelivery time.Duration) []core.CallOption {
	return []core.CallOption{core.Name(name), core.Retention(min(p.retention+redelivery, maxRetention))}
}

func (p *policy) check() {
	f := &p.faults
	f.Check(p.conflict > Skip, "conflict is %d, must be Wait, ComeBack or Skip", p.conflict)
	f.Check(p.wait <= 0, "wait is %v, must be positive; WithConflict(ComeBack) does not wait", p.wait)
	f.Check(p.grace < 0, "grace is %v, must not be negative", p.grace)
	f.Check(p.retention < time.Second || p.retention > maxRetention, "retention is %v, must be at least 1s and at most %v", p.retention, maxRetention)
	f.Check(p.nilAfterCancel > NotDone, "outcome is %d, must be Done or NotDone", p.nilAfterCancel)
}
