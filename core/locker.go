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
// that nobody vouches for, a Redis Cluster behind a plain client, a Lua that lacks what scripts need. What passes, such as a node that does not
// answer or is busy, is logged, and the node is asked again later: New needs no quorum. The error names every
// fault of the options, or, where there is none, of the nodes.
//
// With the restart guard, nodes that are new or lost their memory begin their quarantine at New (those of a Cluster within
// 16 seconds), and nodes that have not been asked for a while are asked until Close: so they vote again soon, also where
// nobody takes a lock.
//
// Whatever retries and backoffs a client has, a call of it ends with the node timeout, or a little later. A read or a dial
// that has begun keeps a connection of its pool for as long as its own timeouts say. A server that answers that it is
// not the one to ask, such as a replica, has its idle connections closed, so that its name is looked up again.
//
// A redis.Client without a read timeout is used with the node timeout as one, so that a connection that swallows requests is
// given back. Give a Cluster client a ReadTimeout.
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

// policyFor is what opts say of nodes, if both are fit.
func policyFor(nodes []redis.UniversalClient, opts []Option) (policy, error) {
	p, err := newPolicy(opts, len(nodes))
	nodeErrs := goredis.Check(nodes, quorum.MaxNodes)
	err = errors.Join(append([]error{err}, nodeErrs...)...)
	if err != nil {
		err = fmt.Errorf("lockkit: %w: %w", ErrInvalid, err)
	}
	return p, err
}

// Open is New with clients of its own, which Close closes. Their settings suit locks: no retries, contexts heeded, timeouts of
// the order of the node timeout, which follows from the TTL; of Sentinels and servers of a Redis Cluster as well. Each URL is
// one node, which is
//
//   - a server: "redis://user:password@host:6379/0", as redis.ParseURL reads it;
//   - a primary that Sentinels watch: "redis-sentinel://host1:26379/0?addr=host2:26379&addr=host3:26379&master_name=mymaster",
//     as redis.ParseFailoverURL reads it: a user and a password before the host are for the Sentinels, and those for the
//     servers are parameters, &username=user&password=secret;
//   - a Redis Cluster, all of it: "redis-cluster://user:password@host1:7000?addr=host2:7000", as redis.ParseClusterURL reads
//     it, some of its servers being enough.
//
// "rediss://", "rediss-sentinel://" and "rediss-cluster://" are the same over TLS, see WithTLS. The error names every fault of
// URLs and options, which match ErrInvalid, and shows nothing of what an unreadable URL contains. A parameter that is not known,
// or would make clients ask a replica, is a fault.
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

// dial makes the clients of Open.
func dial(urls []string, opts []Option) ([]redis.UniversalClient, error) {
	p, err := newPolicy(opts, len(urls))
	d := goredis.Dialer{Timeout: p.nodeTimeout, TLS: p.tls}
	clients := make([]redis.UniversalClient, 0, len(urls))
	wrong := make([]error, len(urls))
	for i, address := range urls {
		client, err := d.Dial(address)
		if err != nil {
			wrong[i] = err
			continue
		}
		clients = append(clients, client)
	}

	var f faults.List
	f.Each("node", wrong)
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

// With derives a Locker with other defaults for its calls, which shares nodes, local queue, watchdog and Close with l.
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

func (l *Locker) checkCall(ctx context.Context) error { return checkCall(ctx, l.valid(), errNoLocker) }

func (l *Locker) valid() bool { return l != nil && l.e != nil }

// set is how l was set up; as little as can be where it was not made.
func (l *Locker) config() *settings {
	if !l.valid() {
		return &settings{Config: node.Config{Logger: slog.Default()}}
	}
	return l.p.settings
}

// KeyPrefix returns what all Redis keys of l start with, see WithKeyPrefix. It is for packages whose host has
// keys of its own in the same Redis.
func (l *Locker) KeyPrefix() string { return l.config().Prefix }

// Logger returns where l logs, see WithLogger. It is for packages built on this one, which log there as well.
func (l *Locker) Logger() *slog.Logger { return l.config().Logger }

// TTL returns how long a key stays taken after the death of its holder.
func (l *Locker) TTL() time.Duration {
	if !l.valid() {
		return 0
	}
	return l.p.ttl
}

// ClockOffset returns by how much the wall clocks of the nodes are ahead of this process's: the median over
// the nodes, of each what the quickest of its last eight replies showed, which is exact to half the time it
// took. It is false before any node has replied.
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

// Event calls the Event of the Locker's [Observer]. It is for packages that translate a lock into the words of
// another library.
func (l *Locker) Event(ctx context.Context, ev Event) {
	onEvent := l.config().observer.Event
	if onEvent != nil {
		onEvent(ctx, ev)
	}
}

// Closing returns a channel that is closed when Close is called. It is for packages that wait for something else than a lock,
// and end with the Locker.
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

// Close ends l and every Locker derived from it or that it was derived from. New acquisitions fail with
// ErrClosed at once, those that wait as soon as the round they are in is over. Close waits until all leases
// are released, and logs which while it waits: a lease that nobody releases keeps it from returning. So give
// ctx a deadline. When ctx ends first, Close takes the leases away (their contexts end with ErrLost, reason
// closed), frees their keys, and returns an error that matches the cause of ctx and names the keys. Either way
// it waits for requests under way: when ctx has ended, until for the node timeout no node has
// answered any. Close also waits for the observer and the logger. If ctx has ended and they do not return, it returns an
// error that says so.
func (l *Locker) Close(ctx context.Context) error {
	if err := l.checkCall(ctx); err != nil {
		return err
	}
	e := l.e

	// Background requests and waits end first, and then no further call is admitted: a call that is admitted in between sees
	// that the Locker is closing.
	e.BeginClose()
	e.gate.Close()

	var err error
	idle := l.waitUntilIdle(ctx)
	if !idle {
		err = l.endLeases(ctx)
	}

	// Only now may no request begin any more: until here, leases were released.
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
			lease.attempt.releaseAll(context.Background()) //nolint:forbidigo // a release is sent even if its caller has gone
		}
	}

	// The other calls see that the Locker is closing, and soon wait for no node any more. But the observer may keep them.
	returned := e.WaitFor(e.gate.Empty(), nil, 5*max(l.p.nodeTimeout, time.Second))
	if !returned {
		err = errors.Join(err, errCallbackRunning)
	}
	return err
}

// drained waits until there are neither leases nor calls, and reports whether that came before the end of ctx.
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

// maxNamed is how many of the leases that Close waits for it names.
const maxNamed = 10

// unfinished returns the leases that are still held, sorted by key, the names of the first of them, and the number of calls
// under way.
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
