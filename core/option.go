package core

import (
	"log/slog"
	"time"
)

// An Option configures a Locker: New, Open or With; or a single call: Acquire, TryAcquire, Do, TryDo or Once. Those that
// belong to all that share the nodes (key prefix, clock window, max TTL, restart guard, replica lag) are for New and
// Open alone.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

func defaults() config {
	return config{
		ttl: 10 * time.Second, maxTTL: derived, renewEvery: derived, nodeTimeout: derived, window: defaultWindow,
		drift:    0.10,
		retryMin: 50 * time.Millisecond, retryMax: 250 * time.Millisecond,
		retention: 24 * time.Hour, resultLimit: 4 << 10,
		prefix: "lockkit:",
		logger: slog.Default(),
	}
}

// WithTTL sets how long a lease lasts on the nodes without renewal, and so how long a key stays taken after
// its holder dies. Default 10s.
func WithTTL(d time.Duration) Option { return option(func(c *config) { c.ttl = d }) }

// WithMaxTTL sets the longest TTL plus lock delay that any process uses on these nodes: a node that lost its
// memory does not vote for this long. It is to be the same everywhere. Where it is not, nodes and processes tell
// one another the longest and go by that; only if no node that answers knows it may a process be granted a key
// too soon. To use a longer TTL, raise WithMaxTTL in every process first. At most 24h. Default: TTL plus lock
// delay of the Locker made by New.
func WithMaxTTL(d time.Duration) Option { return option(func(c *config) { c.maxTTL = d }) }

// WithRenewEvery sets how often the watchdog renews, give or take a tenth. Default: a third of the TTL.
func WithRenewEvery(d time.Duration) Option { return option(func(c *config) { c.renewEvery = d }) }

// WithNodeTimeout sets how long a node may take to answer, whatever the timeouts of its client are.
// Default: a tenth of the TTL, within 50ms and 1s.
func WithNodeTimeout(d time.Duration) Option { return option(func(c *config) { c.nodeTimeout = d }) }

// WithDrift sets by which fraction this machine's clock may run slow. Default 0.1, the most that Linux slews
// a clock; it costs that fraction of the lease.
func WithDrift(fraction float64) Option { return option(func(c *config) { c.drift = fraction }) }

// WithClockWindow sets by how much the wall clocks of a node and this process may differ, request delay
// included; a node outside of it does not take part. It makes steps of the nodes' clocks harmless and
// refuses old requests, at the price of 2.2 windows of each lease. At most a quarter of the TTL; with other
// options at their defaults, a TTL below 2.5s needs a smaller one. It must be the same in all processes. Default
// 500ms; 0 turns it off.
func WithClockWindow(d time.Duration) Option { return option(func(c *config) { c.window = d }) }

// WithMaxWait bounds how long Acquire, Do and Once wait, without bounding the lease as a deadline of their
// context would. Then they fail with ErrHeld or ErrUnavailable. Default 0: the context decides.
func WithMaxWait(d time.Duration) Option { return option(func(c *config) { c.maxWait = d }) }

// WithMaxHold stops renewing this long after the grant, so that a stuck holder loses the key within another
// TTL. Default 0: no limit.
func WithMaxHold(d time.Duration) Option { return option(func(c *config) { c.maxHold = d }) }

// WithMinHold keeps a key taken for this long after it was requested, even if it is released earlier, at
// most 24h. A holder that vanishes frees it after the TTL all the same, and nodes that lose their memory
// forget the rest of it. Default 0.
func WithMinHold(d time.Duration) Option { return option(func(c *config) { c.minHold = d }) }

// WithLockDelay keeps a key taken for this much longer than the TTL when its holder vanishes; the holder
// never trusts it, and a clean release frees the key at once. It covers pauses of a holder that does not
// look at its context. Default 0.
func WithLockDelay(d time.Duration) Option { return option(func(c *config) { c.lockDelay = d }) }

// WithFixedLease turns the watchdog off: a lease ends after its validity.
func WithFixedLease() Option { return option(func(c *config) { c.fixed = true }) }

// WithDetachedLease(true) makes the context of an acquisition govern the wait alone: the lease keeps its values, but
// lives until it is released, completed, lost or taken away by Close. It is for those whose context may end
// before their work has: a cancelled request, a scheduler that shuts down. Do and Once then run fn in a
// context that does not end with the caller's.
func WithDetachedLease(on bool) Option { return option(func(c *config) { c.detached = on }) }

// WithRetryDelay sets the range from which the pause between two attempts on a held key is drawn where the
// nodes do not tell when it is free: where fewer than a quorum of them have the call in their queues. A pause
// never outlasts the holder's remaining time by more than min. Default 50ms to 250ms.
func WithRetryDelay(min, max time.Duration) Option {
	return option(func(c *config) { c.retryMin, c.retryMax = min, max })
}

// WithRetention sets for how long a completed key is not granted again. Nodes keep the record for two hours
// more, so that a clock that jumps ahead by less, and back, drops none. At most ten years. Default 24h.
func WithRetention(d time.Duration) Option { return option(func(c *config) { c.retention = d }) }

// WithResultLimit sets the most bytes a completion record may carry, at most 64 KiB. Default 4 KiB.
func WithResultLimit(bytes int) Option { return option(func(c *config) { c.resultLimit = bytes }) }

// WithKeyPrefix sets what all Redis keys start with: 1 to 64 bytes without braces. Processes that share
// locks share the prefix. Default "lockkit:".
func WithKeyPrefix(prefix string) Option { return option(func(c *config) { c.prefix = prefix }) }

// WithName names the class of keys (job, task type, route) for observers, which must not use keys as labels.
func WithName(name string) Option { return option(func(c *config) { c.name = name }) }

// WithRestartGuard turns the restart guard on or off. With it, a node that lost its memory (restarted empty,
// flushed, failed over) does not vote until every lease it may have forgotten is over, and accepts completions
// only of leases that it has confirmed since. Default: on for three nodes and more; off for one or two, where a
// newcomer's first lock would have to wait for it. Turn it on for a primary with replicas, and see
// WithReplicaLag. Must be the same in all processes.
func WithRestartGuard(on bool) Option { return option(func(c *config) { c.guard = &on }) }

// WithRetryingProxy(true) is for nodes behind a proxy that may deliver a request twice. Every attempt then leaves a
// tombstone on each node, so that nothing of it that comes late takes the key. Without the option an attempt leaves
// none on a node that has answered everything it was sent, and a request that arrives once more, after its answer,
// may keep the key taken for a TTL; nobody holds it twice, however. Default: off.
func WithRetryingProxy(on bool) Option { return option(func(c *config) { c.repeats = on }) }

// WithReplicaLag sets for how long an old primary may go on serving after one of its replicas was promoted
// (min-replicas-max-lag). For so long, a node that was promoted or restarted confirms no renewal and accepts no
// completion, and its quarantine lasts longer by as much. Only with the restart guard, for nodes with replicas.
// Default 0.
func WithReplicaLag(d time.Duration) Option { return option(func(c *config) { c.lag = d }) }

// WithObserver sets who watches operations. Default: nobody.
func WithObserver(o Observer) Option { return option(func(c *config) { c.observer = o }) }

// WithLogger sets where the few things go that an operator must know: lost leases, releases that could not
// be confirmed, nodes in trouble, a Close that waits. Keys are hashed in it. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return option(func(c *config) { c.logger = l }) }

func (c config) with(opts []Option) config {
	c.set(opts)
	return c
}

func (c *config) set(opts []Option) {
	c.nilOptions = 0
	for _, o := range opts {
		if o == nil {
			c.nilOptions++
			continue
		}
		o.apply(c)
	}
}
