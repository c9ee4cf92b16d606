package core

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// An Option configures New, Open or With.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

// config is what the options said. Durations below zero are not set: policy derives them from the TTL.
type config struct {
	ttl, maxTTL, renewEvery, nodeTimeout time.Duration
	drift                                float64
	window                               time.Duration
	maxWait, maxHold, minHold, lockDelay time.Duration
	fixed, detached                      bool
	retryMin, retryMax                   time.Duration
	retention                            time.Duration
	resultLimit                          int
	prefix, name                         string
	guard                                *bool
	lag                                  time.Duration
	observer                             Observer
	logger                               *slog.Logger
	nilOptions                           int
}

// Places in static of what nodes may know better.
const maxTTLArg, idleArg = 2, 4

const derived time.Duration = -1 << 62

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

// WithRetryDelay sets the range from which the pause between two attempts on a held key is drawn. A pause
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
	c.nilOptions = 0
	for _, o := range opts {
		if o == nil {
			c.nilOptions++
			continue
		}
		o.apply(&c)
	}
	return c
}

// A policy is a config with everything derived and checked.
type policy struct {
	config
	asked     config // as the options said
	guarded   bool
	validity  time.Duration // from sending a request until its lease is not trusted any more
	margin    time.Duration // the context ends this much earlier
	server    time.Duration // what nodes are told: TTL plus lock delay
	tombstone time.Duration

	// Arguments of scripts, boxed once. static are those that follow the attempt's own in all but release.
	static      [6]any // with the max TTL at maxTTLArg
	tombstoneMs any
	turnMs      any // for how long a node that refuses a renewal keeps others out, so that the next one finds it free
}

// policy checks c for n nodes and names every fault.
func (c config) policy(n int) (policy, error) {
	p := policy{config: c, asked: c, guarded: n >= 3}
	if c.guard != nil {
		p.guarded = *c.guard
	}
	p.server = c.ttl + c.lockDelay
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d == derived {
			*d = otherwise
		}
	}
	set(&p.maxTTL, p.server)
	set(&p.renewEvery, c.ttl/3)
	set(&p.nodeTimeout, defaultNodeTimeout(c.ttl))
	p.validity = validity(c.ttl, c.drift, p.window)
	p.margin = cancelMargin(c.ttl)
	p.tombstone = tombstoneTTL(p.window, p.nodeTimeout, p.maxTTL)
	p.tombstoneMs = p.tombstone.Milliseconds()
	p.turnMs = (p.ttl/20 + p.nodeTimeout).Milliseconds()
	p.static = [6]any{p.window.Milliseconds(), p.server.Milliseconds(), p.maxTTL.Milliseconds(), p.lag.Milliseconds(),
		idleLife(p.maxTTL).Milliseconds(), slack.Milliseconds()}
	return p, p.check()
}

func (p *policy) check() error {
	var faults []error
	bad := func(is bool, format string, args ...any) {
		if is {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	bad(p.nilOptions > 0, "%d options are nil", p.nilOptions)
	bad(p.logger == nil, "logger is nil (to be silent: slog.New(slog.DiscardHandler))")
	for _, d := range []struct {
		name string
		d    time.Duration // what was asked for: what is derived from a bad TTL is no fault of its own
	}{{"TTL", p.ttl}, {"max TTL", p.asked.maxTTL}, {"renewal period", p.asked.renewEvery}, {"node timeout", p.asked.nodeTimeout},
		{"retention", p.retention}, {"least retry delay", p.retryMin}} {
		bad(d.d < time.Millisecond && d.d != derived, "%s is %v, must be at least 1ms", d.name, d.d)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"clock window", p.window}, {"max wait", p.maxWait}, {"max hold", p.maxHold}, {"min hold", p.minHold},
		{"lock delay", p.lockDelay}, {"replica lag", p.lag}} {
		bad(d.d < 0, "%s is %v, must not be negative", d.name, d.d)
	}
	bad(p.window > 0 && p.window < time.Millisecond, "clock window is %v, must be 0 (off) or at least 1ms", p.window)
	bad(!(p.drift >= 0 && p.drift < 1), "drift is %v, must be at least 0 and less than 1", p.drift)
	bad(p.retryMax < p.retryMin, "retry delays are %v to %v: the first must not be greater", p.retryMin, p.retryMax)
	bad(p.server > slack, "TTL plus lock delay is %v, must be at most %v", p.server, slack)
	bad(p.asked.maxTTL > slack, "max TTL is %v, must be at most %v", p.maxTTL, slack)
	bad(p.retention > maxRetention, "retention is %v, must be at most %v", p.retention, maxRetention)
	bad(p.minHold > slack, "min hold is %v, must be at most %v", p.minHold, slack)
	bad(p.resultLimit < 0 || p.resultLimit > 64<<10, "result limit is %d bytes, must be 0 to %d", p.resultLimit, 64<<10)
	bad(len(p.prefix) < 1 || len(p.prefix) > 64 || strings.ContainsAny(p.prefix, "{}"),
		"key prefix %q must have 1 to 64 bytes and no braces", p.prefix)
	bad(p.lag > 0 && !p.guarded, "replica lag is set, but the restart guard is off")
	if len(faults) == 0 {
		bad(p.server > p.maxTTL, "TTL %v plus lock delay %v is more than the max TTL %v, which a node waits for after it lost its memory: raise WithMaxTTL in every process first",
			p.ttl, p.lockDelay, p.maxTTL)
		bad(p.window > p.ttl/4, "clock window %v is more than a quarter of the TTL %v", p.window, p.ttl)
		trusted := p.validity - p.margin
		switch need := p.renewEvery + p.nodeTimeout; {
		case p.fixed:
			bad(trusted <= p.nodeTimeout, "of TTL %v only %v can be trusted, which a node timeout of %v uses up", p.ttl, trusted, p.nodeTimeout)
		default:
			bad(trusted <= need, "of TTL %v only %v can be trusted, too little for a renewal every %v with a node timeout of %v (the clock window takes %v: a smaller one must be smaller in every process)",
				p.ttl, trusted, p.renewEvery, p.nodeTimeout, 2*p.window+2*clientSkew(p.window))
		}
	}
	return errors.Join(faults...)
}
