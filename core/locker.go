package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
)

// A Locker acquires leases on a set of nodes. It is safe for concurrent use. Its options never change; With derives a
// Locker with other options.
type Locker struct {
	e *engine
	p policy
}

// New returns a Locker over nodes, which must be independent Redis masters. The caller owns the clients, which may
// have any options. Before New returns, it checks that each node is suitable, for at most the node timeout. A problem
// that will not go away on its own is an error: the same server twice, a replica, a server that may evict keys or is
// older than Redis 6.2.7, wrong credentials, missing rights, a certificate that cannot be verified, a Redis Cluster
// behind a plain client, or a Lua that lacks functions that the scripts need. Any other problem, such as a node that
// does not answer or is busy, is logged, and the node is checked again later: New needs no quorum. The error names
// every invalid option or, if the options are valid, every problem of the nodes.
//
// With the restart guard, nodes that are new or lost their memory begin their quarantine at New (nodes that are a
// Cluster within 16 seconds). Nodes that have not been asked for a while are asked until Close. Thus they vote again
// soon, even if no lock is taken.
//
// A client's call ends with the node timeout, or a little later, whatever its retries and backoffs. A read or a dial
// that has begun keeps a connection of its pool until its own timeouts end it. If a server answers that it is the
// wrong server, for instance because it is a replica, its idle connections are closed, so that its name is resolved
// again.
//
// A redis.Client without a read timeout is used with the node timeout as its read timeout, so that a connection that
// never answers is given back. Give a Cluster client a ReadTimeout.
func New(nodes []redis.UniversalClient, opts ...Option) (*Locker, error) {
	p, err := policyFor(nodes, opts)
	if err != nil {
		return nil, err
	}
	p.containPanics()
	l := &Locker{newEngine(nodes, &p), p}
	err = l.e.CheckAll()
	if err != nil && !p.ReadOnly {
		return nil, fmt.Errorf("lockkit: %w", err)
	}
	if p.ttl > time.Minute {
		p.Logger.Warn(
			"lockkit: TTL is above a minute: the key of a holder that dies or is revoked stays taken for that long, "+
				"and nothing frees it sooner",
			"ttl", p.ttl,
		)
	}

	// Only a Locker that is returned asks idle nodes: Close ends that.
	l.e.StartMonitor()
	return l, nil
}

// policyFor returns the policy that the options make for nodes. The error names every invalid option and every
// invalid node.
func policyFor(nodes []redis.UniversalClient, opts []Option) (policy, error) {
	p, err := newPolicy(opts, len(nodes))
	nodeErrs := goredis.Check(nodes, quorum.MaxNodes)
	err = errors.Join(append([]error{err}, nodeErrs...)...)
	if err != nil {
		err = fmt.Errorf("lockkit: %w: %w", ErrInvalid, err)
	}
	return p, err
}

// With derives a Locker with other defaults for its calls. It shares nodes, local queue, watchdog and Close with l.
func (l *Locker) With(opts ...CallOption) (*Locker, error) {
	if !l.valid() {
		return nil, errNoLocker
	}
	p, err := l.p.withCallOptions(opts)
	if err != nil {
		return nil, err
	}
	return &Locker{l.e, *p}, nil
}

var errNoLocker = fmt.Errorf("lockkit: %w: the Locker was not made by New, Open or With", ErrInvalid)

// checkCall returns an error if l was not made by New, Open or With, or if the context is nil.
func (l *Locker) checkCall(ctx context.Context) error {
	return checkCall(ctx, l.valid(), errNoLocker)
}

// valid reports whether l was made by New, Open or With.
func (l *Locker) valid() bool { return l != nil && l.e != nil }

// config returns the settings of l, or the fewest possible if l was not made by New, Open or With.
func (l *Locker) config() *settings {
	if !l.valid() {
		return &settings{Config: node.Config{Logger: slog.Default()}}
	}
	return l.p.settings
}

// KeyPrefix returns the prefix of all Redis keys of l, see WithKeyPrefix. It is for packages whose host library has
// keys in the same Redis.
func (l *Locker) KeyPrefix() string { return l.config().Prefix }

// Logger returns the logger of l, see WithLogger. Packages built on this one log to it, too.
func (l *Locker) Logger() *slog.Logger { return l.config().Logger }

// TTL returns how long a key stays taken after its holder dies.
func (l *Locker) TTL() time.Duration {
	if !l.valid() {
		return 0
	}
	return l.p.ttl
}

// MaxWait returns how long a call waits for a key, see the option [MaxWait]; 0 means until its context ends. It is for
// packages whose calls also wait for something else.
func (l *Locker) MaxWait() time.Duration {
	if !l.valid() {
		return 0
	}
	return l.p.maxWait
}

// ClockOffset returns how far the nodes' wall clocks are ahead of this process's: the median over the nodes, each
// estimated from the fastest of its last eight replies, with an error of at most half its round trip. It returns
// false if no node has replied yet.
func (l *Locker) ClockOffset() (time.Duration, bool) {
	if !l.valid() {
		return 0, false
	}
	var offsets []time.Duration
	for _, n := range l.e.Nodes {
		if offset, known := n.ClockOffset(); known {
			offsets = append(offsets, offset)
		}
	}
	if offsets == nil {
		return 0, false
	}
	slices.Sort(offsets)
	return offsets[len(offsets)/2], true
}

// Event calls the Event function of the Locker's [Observer]. It is for packages that translate a lock into the terms of
// another library.
func (l *Locker) Event(ctx context.Context, ev Event) {
	onEvent := l.config().observer.Event
	if onEvent != nil {
		onEvent(ctx, ev)
	}
}
