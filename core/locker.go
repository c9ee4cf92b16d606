package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/internal/callback"
	"github.com/lockkit/lockkit/internal/faults"
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
	err = l.e.Check()
	if err != nil && !p.Looking {
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
	l.e.LookAfter()
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

// Open is New with clients that it makes, and that Close closes. Their settings suit locks: no retries, respect for
// contexts, and timeouts of the order of the node timeout, which follows from the TTL. The same holds for the clients
// of Sentinels and of servers of a Redis Cluster. Each URL is one node, which is
//
//   - a server: "redis://user:password@host:6379/0", as redis.ParseURL reads it;
//   - a primary that Sentinels watch:
//     "redis-sentinel://host1:26379/0?addr=host2:26379&addr=host3:26379&master_name=mymaster", as
//     redis.ParseFailoverURL reads it: a user and a password before the host are for the Sentinels, and those for the
//     servers are parameters, &username=user&password=secret;
//   - a Redis Cluster, all of it: "redis-cluster://user:password@host1:7000?addr=host2:7000", as
//     redis.ParseClusterURL reads it; some of its servers are enough.
//
// "rediss://", "rediss-sentinel://" and "rediss-cluster://" are the same over TLS, see WithTLS. If a URL or an option
// is invalid, the error names each of them, matches ErrInvalid, and does not show any part of a URL that cannot be
// parsed. A parameter that is unknown, or would make clients ask a replica, is invalid.
func Open(urls []string, opts ...Option) (*Locker, error) {
	clients, err := dial(urls, opts)
	if err != nil {
		return nil, err
	}
	l, err := New(clients, opts...)
	if err != nil {
		return nil, errors.Join(err, closeClients(clients))
	}
	l.e.closeOwnClients = sync.OnceValue(func() error { return closeClients(clients) })
	return l, nil
}

// dial returns the clients of Open, one for each URL.
func dial(urls []string, opts []Option) ([]redis.UniversalClient, error) {
	p, err := newPolicy(opts, len(urls))
	d := goredis.Dialer{Timeout: p.nodeTimeout, TLS: p.tls}
	clients := make([]redis.UniversalClient, 0, len(urls))
	dialErrs := make([]error, len(urls))
	for i, address := range urls {
		client, err := d.Dial(address)
		if err != nil {
			dialErrs[i] = err
			continue
		}
		clients = append(clients, client)
	}

	var f faults.List
	f.Each("node", dialErrs)
	err = errors.Join(append([]error{err}, f...)...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lockkit: %w: %w", ErrInvalid, err), closeClients(clients))
	}
	return clients, nil
}

func closeClients(clients []redis.UniversalClient) (err error) {
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
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

// ClockOffset returns how far the nodes' wall clocks are ahead of this process's: the median over the nodes, each
// estimated from the fastest of its last eight replies, with an error of at most half its round trip. It returns
// false if no node has replied yet.
func (l *Locker) ClockOffset() (time.Duration, bool) {
	if !l.valid() {
		return 0, false
	}
	var offsets []time.Duration
	for _, n := range l.e.Nodes {
		if offset, known := n.Ahead(); known {
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

// Closing returns a channel that is closed when Close is called. It is for packages that wait for events other than a
// lock and must end with the Locker.
func (l *Locker) Closing() <-chan struct{} {
	if !l.valid() {
		return nil
	}
	return l.e.Closing.Done()
}

var (
	errRequestsRunning = errors.New("requests to nodes are still in progress: the client ignores contexts")
	errCallbackRunning = errors.New("the observer or the logger has not returned")
)

// Close closes l, every Locker derived from it, and the Locker from which it was derived. New acquisitions fail with
// ErrClosed at once. Acquisitions that wait fail as soon as their current round is over. Close waits until all leases
// are released, and logs the leases that are not: a lease that is never released keeps Close from returning. So give
// ctx a deadline.
//
// If ctx ends first, Close ends the leases (their contexts end with ErrLost, reason closed), frees their keys, and
// returns an error that matches the cause of ctx and names the keys. In either case it waits for requests in flight:
// once ctx has ended, until no node has answered any for the node timeout. Close also waits for the observer and the
// logger. If ctx has ended and they do not return, Close returns an error that says so.
func (l *Locker) Close(ctx context.Context) error {
	if err := l.checkCall(ctx); err != nil {
		return err
	}
	e := l.e

	// Background requests and waits end first, and then no further call is admitted: a call that is admitted in
	// between sees that the Locker is closing.
	e.BeginClose()
	e.gate.Close()

	var err error
	idle := l.waitUntilIdle(ctx)
	if !idle {
		err = l.endLeases(ctx)
	}

	// Background tasks are refused only now, because the releases of leases may have needed some.
	e.Tasks.Close()
	joined := e.Tasks.Empty()
	if e.closeOwnClients != nil {
		// Requests get a last node timeout. Closing the clients breaks those that are left.
		e.WaitFor(joined, nil, l.p.nodeTimeout)
		err = errors.Join(err, e.closeOwnClients())
	}

	isDone := e.WaitFor(joined, ctx.Done(), l.p.nodeTimeout)
	switch {
	case isDone:
	case errors.Is(err, errCallbackRunning):
	case e.Callbacks.Busy():
		err = errors.Join(err, errCallbackRunning)
	default:
		err = errors.Join(err, errRequestsRunning)
	}
	return err
}

// endLeases ends the leases that are left when ctx has ended before Close was done, and waits for the other calls. It
// returns the error of Close.
func (l *Locker) endLeases(ctx context.Context) error {
	e := l.e
	left, keys, calls := l.unfinished(func(lease *Lease) string { return strconv.Quote(lease.Key()) })
	err := fmt.Errorf(
		"lockkit: close: %w; calls under way: %d; leases not released, which are taken away: %d (%s)",
		context.Cause(ctx), calls, len(left), strings.Join(keys, ", "),
	)

	// The context of a lease ends before its key is released.
	for _, lease := range left {
		wasHeld := lease.declareLost(LossClosed)
		if wasHeld {
			lease.attempt.releaseAll(context.Background()) //nolint:forbidigo // it outlives its caller
		}
	}

	// The other calls see that the Locker is closing, and soon wait for no node any more. But the observer may keep
	// them.
	returned := e.WaitFor(e.gate.Empty(), nil, 5*max(l.p.nodeTimeout, time.Second))
	if !returned {
		err = errors.Join(err, errCallbackRunning)
	}
	return err
}

// waitUntilIdle waits until there are no leases and no calls, and reports whether this came before the end of ctx. It
// logs the leases that are left once, after ten seconds.
func (l *Locker) waitUntilIdle(ctx context.Context) bool {
	e := l.e
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	var logs callback.Queue // ctx may end while the logger does not return
	for {
		select {
		case <-e.gate.Empty():
			return true
		case <-ctx.Done():
			return e.gate.Inside() == 0
		case <-timer.C:
			leases, names, calls := l.unfinished(nameForLog)
			e.Callbacks.Post(&logs, func() {
				l.p.Logger.Warn(
					"lockkit: Close waits for leases that are not released",
					"leases", len(leases), "calls", calls, "name_and_key_hash", names,
				)
			})
		}
	}
}

// nameForLog returns the name and the key hash of a lease.
func nameForLog(lease *Lease) string {
	return strings.TrimSpace(lease.attempt.p.name + " " + keyHash(lease.Key()))
}

// maxNamed is how many unreleased leases Close names.
const maxNamed = 10

// unfinished returns the leases that are still held, sorted by key, the names of the first maxNamed of them, and the
// number of calls in progress.
func (l *Locker) unfinished(name func(*Lease) string) (leases []*Lease, names []string, calls int) {
	e := l.e
	e.watchdog.mu.Lock()
	defer e.watchdog.mu.Unlock()
	byKey := func(a, b *Lease) int { return strings.Compare(a.Key(), b.Key()) }
	leases = slices.SortedFunc(slices.Values(e.watchdog.leases), byKey)
	for _, lease := range leases[:min(len(leases), maxNamed)] {
		names = append(names, name(lease))
	}
	return leases, names, e.gate.Inside() - len(leases)
}
