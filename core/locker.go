package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Locker acquires leases on a set of nodes. It is safe for concurrent use, and its options never change:
// another policy is another Locker, see With.
type Locker struct {
	e *engine
	p policy
}

// New returns a Locker over nodes, which must be independent Redis masters; the caller keeps owning the
// clients, which may have any options. Before it returns it asks each node, for at most the node timeout,
// whether it is fit. What lasts until somebody mends it is an error: the same server twice, a replica, a
// server that may evict keys or is older than Redis 6.2.7, wrong credentials, missing rights, a certificate
// that nobody vouches for, a Redis Cluster behind a plain client. What passes, such as a node that does not
// answer or is busy, is logged, and the node is asked again later: New needs no quorum. The error names every
// fault of the options, or, where there is none, of the nodes.
//
// With the restart guard, nodes that are new or lost their memory begin their quarantine at New (those of a Cluster within
// 16 seconds), and nodes that have not been asked for a while are asked until Close: so they vote again soon, also where
// nobody takes a lock.
//
// A redis.Client without a read timeout is used with the node timeout as one, so that a connection that swallows requests is
// given back. Give a Cluster client a ReadTimeout.
func New(nodes []redis.UniversalClient, opts ...Option) (*Locker, error) {
	l, err := newLocker(nodes, opts)
	if err != nil {
		return nil, err
	}
	l.e.Health.Start()
	if l.p.Guarded && !l.p.Looking && l.e.Keys.Buckets() == 1 {
		l.e.Go(l.beginQuarantines)
	}
	return l, nil
}

// newLocker returns a Locker whose nodes are fit, and looked after by nobody yet.
func newLocker(nodes []redis.UniversalClient, opts []Option) (*Locker, error) {
	conf := defaults().with(opts)
	p, err := conf.policy(len(nodes))
	if err := errors.Join(append([]error{err}, goredis.Check(nodes, quorum.MaxNodes)...)...); err != nil {
		return nil, fmt.Errorf("lockkit: %w: %w", ErrInvalid, err)
	}
	l := &Locker{p: p}
	l.e = newEngine(nodes, &l.p)
	if err := l.e.Health.Check(); err != nil && !p.Looking {
		return nil, fmt.Errorf("lockkit: %w", err)
	}
	if p.ttl > time.Minute {
		p.Logger.Warn("lockkit: TTL is above a minute: the key of a holder that dies or is revoked stays taken for that long, and nothing frees it sooner", "ttl", p.ttl)
	}
	return l, nil
}

// beginQuarantines has nodes notice that they are new, or have lost their memory, before anybody asks for a key. The new
// ones stay so for Provision. The buckets of a Cluster are touched in turn instead.
func (l *Locker) beginQuarantines() {
	ctx := context.Background() //nolint:forbidigo // nobody waits for it; bounded by the node timeout
	said, err := l.claim(ctx, 0, nil)
	var lost quorum.Set
	for i := range said {
		if said[i].Verdict == wire.Quarantined && said[i].Claim == "" {
			lost = lost.With(i)
		}
	}
	if err == nil && lost != 0 {
		l.e.Health.Touch(lost, 0)
	}
}

// Open is New with clients that Dial makes. Close closes them.
func Open(urls []string, opts ...Option) (*Locker, error) {
	clients, err := Dial(urls, opts...)
	if err != nil {
		return nil, err
	}
	l, err := New(clients, opts...)
	if err != nil {
		return nil, errors.Join(err, closeClients(clients))
	}
	l.e.hangUp = sync.OnceValue(func() error { return closeClients(clients) })
	return l, nil
}

func closeClients(clients []redis.UniversalClient) error {
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// With derives a Locker with other defaults for its calls, which shares nodes, local queue, watchdog and Close with l.
func (l *Locker) With(opts ...CallOption) (*Locker, error) {
	if !l.made() {
		return nil, errNoLocker
	}
	p, err := l.p.of(opts)
	if err != nil {
		return nil, err
	}
	return &Locker{l.e, *p}, nil
}

// of is p with the options of a call, or of another Locker.
func (p *policy) of(opts []CallOption) (*policy, error) {
	if len(opts) == 0 {
		return p, nil
	}
	own := new(policy)
	*own = *p
	for _, o := range opts {
		if o == nil {
			own.missing++
		} else {
			o.ofCall(&own.options)
		}
	}
	var f faults.List
	if own.check(&f); f != nil {
		return nil, fmt.Errorf("lockkit: %w: %w", ErrInvalid, errors.Join(f...))
	}
	if own.name != p.name || own.note != p.note {
		own.carries = wire.Holder{Note: own.note, Name: own.name}.Carried()
	}
	if own.ttl != p.ttl || own.tune != nil {
		own.derive()
	}
	return own, nil
}

// fit reports what makes a call impossible, whatever it is for.
func (l *Locker) fit(ctx context.Context) error {
	if !l.made() {
		return errNoLocker
	}
	if ctx == nil {
		return errNoContext
	}
	return nil
}

func (l *Locker) made() bool { return l != nil && l.e != nil }

// KeyPrefix returns what all Redis keys of l start with, see WithKeyPrefix. It is for packages whose host has
// keys of its own in the same Redis.
func (l *Locker) KeyPrefix() string {
	if !l.made() {
		return ""
	}
	return l.p.Prefix
}

// Logger returns where l logs, see WithLogger. It is for packages built on this one, which log there as well.
func (l *Locker) Logger() *slog.Logger {
	if !l.made() {
		return slog.Default()
	}
	return l.p.Logger
}

// TTL returns how long a key stays taken after the death of its holder.
func (l *Locker) TTL() time.Duration { return l.p.ttl }

// ClockOffset returns by how much the wall clocks of the nodes are ahead of this process's: the median over
// the nodes, of each what the quickest of its last eight replies showed, which is exact to half the time it
// took. It is false before any node has replied.
func (l *Locker) ClockOffset() (time.Duration, bool) {
	if !l.made() {
		return 0, false
	}
	var ahead []time.Duration
	for _, n := range l.e.Nodes {
		if by, known := n.Ahead(); known {
			ahead = append(ahead, by)
		}
	}
	if len(ahead) == 0 {
		return 0, false
	}
	slices.Sort(ahead)
	return ahead[len(ahead)/2], true
}

// Event calls the Event of the Locker's [Observer]. It is for packages that translate a lock into the words of
// another library.
func (l *Locker) Event(ctx context.Context, ev Event) {
	if l.made() && l.p.observer.Event != nil {
		l.p.observer.Event(ctx, ev)
	}
}
