package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Locker acquires leases on a set of nodes. It is safe for concurrent use, and its options never change:
// another policy is another Locker, see With.
type Locker struct {
	e *engine
	p policy
}

// An engine is what all Lockers derived from one another share: nodes, local queue, watchdog.
type engine struct {
	nodes         []*node
	keys          keyspace
	guards        []any // guard keys by bucket, boxed
	clock         stopwatch
	lines         lines
	watchdog      watchdog
	jitter        func(n int64) int64 // uniform in [0, n)
	attempts      atomic.Uint64       // made so far, to name them
	longest       atomic.Value        // int64: the longest lease in use, ms, where a node knows of a longer one than this process
	tasks         sync.WaitGroup      // every goroutine of the Locker
	owned         bool                // Close closes the clients
	clientsClosed sync.Once

	mu      sync.Mutex
	leases  map[*Lease]struct{}
	active  int           // calls of Acquire under way
	quiet   chan struct{} // closed when a closed engine has neither leases nor calls
	closed  bool
	closing chan struct{}
}

// New returns a Locker over nodes, which must be independent Redis masters; the caller keeps owning the
// clients, which may have any options. Before it returns it asks each node, for at most the node timeout,
// whether it is fit: the same server twice, a replica, or a server that may evict keys is an error. A node
// that does not answer is asked again when it does. The error names every fault of options and nodes.
func New(nodes []redis.UniversalClient, opts ...Option) (*Locker, error) {
	conf := defaults().with(opts)
	p, err := conf.policy(len(nodes))
	if err := errors.Join(err, checkClients(nodes)); err != nil {
		return nil, fmt.Errorf("lockkit: %w", err)
	}
	e := &engine{
		clock: newStopwatch(), jitter: rand.Int64N,
		lines:   lines{m: map[string]line{}},
		leases:  map[*Lease]struct{}{},
		quiet:   make(chan struct{}),
		closing: make(chan struct{}),
	}
	buckets := 1
	for i, c := range nodes {
		e.nodes = append(e.nodes, newNode(i, c))
		if _, cluster := c.(*redis.ClusterClient); cluster {
			buckets = clusterBuckets
		}
	}
	e.keys = newKeyspace(p.prefix, buckets)
	for _, n := range e.nodes {
		n.memories = make([]atomic.Pointer[string], buckets)
	}
	for b := range buckets {
		e.guards = append(e.guards, e.keys.guard(b))
	}
	e.watchdog.e = e
	l := &Locker{e, p}
	if err := l.checkNodes(); err != nil {
		return nil, fmt.Errorf("lockkit: %w", err)
	}
	return l, nil
}

// Open is New with clients of its own, dialled with settings that suit locks: no retries, contexts heeded,
// timeouts of the order of the node timeout. Close closes them. URLs are as in redis.ParseURL:
// "redis://user:password@host:6379/0", "rediss://…" for TLS.
func Open(urls []string, opts ...Option) (*Locker, error) {
	p, err := defaults().with(opts).policy(len(urls))
	faults := []error{err}
	clients := make([]redis.UniversalClient, 0, len(urls))
	for i, address := range urls {
		o, err := redis.ParseURL(address)
		if err != nil {
			// What is wrong with it may be a part of a password, so the URL's own error stays unsaid.
			faults = append(faults, fmt.Errorf("node %d: not a URL as redis.ParseURL reads it, such as rediss://user:password@host:6379/0", i))
			continue
		}
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = p.nodeTimeout, p.nodeTimeout, p.nodeTimeout
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		clients = append(clients, redis.NewClient(o))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, errors.Join(fmt.Errorf("lockkit: %w", err), closeClients(clients))
	}
	l, err := New(clients, opts...)
	if err != nil {
		return nil, errors.Join(err, closeClients(clients))
	}
	l.e.owned = true
	return l, nil
}

func closeClients(clients []redis.UniversalClient) error {
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// With derives a Locker with other options that shares nodes, local queue, watchdog and Close with l. Key
// prefix, clock window, max TTL, restart guard and replica lag belong to the nodes: changing them is an
// error.
func (l *Locker) With(opts ...Option) (*Locker, error) {
	conf := l.p.asked
	conf.guard, conf.window, conf.maxTTL = &l.p.guarded, l.p.window, l.p.maxTTL
	p, err := conf.with(opts).policy(len(l.e.nodes))
	var shared error
	if p.prefix != l.p.prefix || p.window != l.p.window || p.maxTTL != l.p.maxTTL || p.guarded != l.p.guarded || p.lag != l.p.lag {
		shared = errors.New("key prefix, clock window, max TTL, restart guard and replica lag are set by New for all")
	}
	if err := errors.Join(err, shared); err != nil {
		return nil, fmt.Errorf("lockkit: %w", err)
	}
	return &Locker{l.e, p}, nil
}

// KeyPrefix returns what all Redis keys of l start with, see WithKeyPrefix. It is for packages whose host has
// keys of its own in the same Redis.
func (l *Locker) KeyPrefix() string { return l.p.prefix }
