package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Places in static of what nodes may know better.
const maxTTLArg, idleArg = 2, 4

// serverArg is the place in static of how long nodes are to keep the lease.
const serverArg = 1

const derived time.Duration = -1 << 62

const maxResult = 64 << 10 // bytes

// config is what the options said. Durations below zero are not set: policy derives them from the TTL.
type config struct {
	ttl, maxTTL, renewEvery, nodeTimeout time.Duration
	drift                                float64
	window                               time.Duration
	maxWait, maxHold                     time.Duration
	fixed, detached, reentrant           bool
	renewWhile                           func(context.Context) error
	retryMin, retryMax                   time.Duration
	retention                            time.Duration
	prefix, name, shows, by              string
	guard                                *bool
	lag                                  time.Duration
	repeats, unfit                       bool
	tls                                  *tls.Config
	observer                             Observer
	logger                               *slog.Logger
	nilOptions                           int
}

// A policy is a config with everything derived and checked.
type policy struct {
	config
	options   config // as they were given
	nodes     int
	guarded   bool
	validity  time.Duration // from sending a request until its lease is not trusted any more
	margin    time.Duration // the context ends this much earlier
	tombstone time.Duration
	signed    string // see signing

	// Arguments of scripts, boxed once. static are those that follow the attempt's own in all but release.
	static      [6]any // with the max TTL at maxTTLArg
	tombstoneMs any
	turnMs      any // for how long a node that refuses a renewal keeps others out, so that the next one finds it free
}

// policy checks c for n nodes and names every fault.
func (c config) policy(n int) (policy, error) {
	p := policy{config: c, options: c, nodes: n, guarded: n >= 3}
	if c.guard != nil {
		p.guarded = *c.guard
	}
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d == derived {
			*d = otherwise
		}
	}
	set(&p.maxTTL, p.ttl)
	set(&p.renewEvery, c.ttl/3)
	set(&p.nodeTimeout, defaultNodeTimeout(c.ttl))
	p.validity = validity(c.ttl, c.drift, p.window)
	p.margin = cancelMargin(c.ttl)
	p.tombstone = tombstoneTTL(p.window, p.nodeTimeout, p.maxTTL)
	p.tombstoneMs = p.tombstone.Milliseconds()
	p.signed = signing(p.by, p.name)
	p.turnMs = (p.ttl/20 + p.nodeTimeout).Milliseconds()
	p.static = [6]any{p.window.Milliseconds(), p.ttl.Milliseconds(), p.maxTTL.Milliseconds(), p.lag.Milliseconds(),
		idleLife(p.maxTTL).Milliseconds(), slack.Milliseconds()}
	return p, p.check()
}

// lasting is p with another TTL, and what follows from that.
func (p *policy) lasting(ttl time.Duration) (policy, error) {
	c := p.config // with the node timeout that the attempt's tombstones are made for
	c.ttl = ttl
	return c.policy(p.nodes)
}

// quick reports whether p, whose options are those of another policy but for some that nothing is derived from, needs no
// more: it is as fit as that one.
func (p *policy) quick(of *config) bool {
	c := &p.config
	return c.ttl == of.ttl && c.maxTTL == of.maxTTL && c.renewEvery == of.renewEvery &&
		c.nodeTimeout == of.nodeTimeout && c.drift == of.drift && c.window == of.window && c.fixed == of.fixed && !(c.fixed && c.renewWhile != nil) &&
		c.prefix == of.prefix && c.guard == of.guard && c.lag == of.lag &&
		c.nilOptions == 0 && c.logger != nil && len(c.shows) <= maxShown && c.maxWait >= 0 && c.maxHold >= 0 &&
		time.Millisecond <= c.retention && c.retention <= maxRetention &&
		time.Millisecond <= c.retryMin && c.retryMin <= c.retryMax
}

func (p *policy) check() error {
	var faults []error
	bad := func(is bool, format string, args ...any) {
		if is {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	atLeast := func(name string, d time.Duration) { // as was asked for: what is derived from a bad TTL is no fault of its own
		bad(d < time.Millisecond && d != derived, "%s is %v, must be at least 1ms", name, d)
	}
	notNegative := func(name string, d time.Duration) { bad(d < 0, "%s is %v, must not be negative", name, d) }

	atLeast("TTL", p.ttl)
	atLeast("max TTL", p.options.maxTTL)
	atLeast("renewal period", p.options.renewEvery)
	atLeast("node timeout", p.options.nodeTimeout)
	notNegative("clock window", p.window)
	bad(!(p.drift >= 0 && p.drift < 1), "drift is %v, must be at least 0 and less than 1", p.drift)
	if len(faults) == 0 { // else it cannot be said whether they suit each other
		p.checkRelations(bad)
	}
	bad(p.nilOptions > 0, "%d options are nil", p.nilOptions)
	bad(p.logger == nil, "logger is nil (to be silent: slog.New(slog.DiscardHandler))")
	atLeast("retention", p.retention)
	atLeast("least retry delay", p.retryMin)
	notNegative("max wait", p.maxWait)
	notNegative("max hold", p.maxHold)
	notNegative("replica lag", p.lag)
	bad(p.window > 0 && p.window < time.Millisecond, "clock window is %v, must be 0 (off) or at least 1ms", p.window)
	bad(p.retryMax < p.retryMin, "retry delays are %v to %v: the first must not be greater", p.retryMin, p.retryMax)
	bad(p.ttl > slack, "TTL is %v, must be at most %v", p.ttl, slack)
	bad(p.options.maxTTL > slack, "max TTL is %v, must be at most %v", p.maxTTL, slack)
	bad(p.retention > maxRetention, "retention is %v, must be at most %v", p.retention, maxRetention)
	bad(len(p.shows) > maxShown, "the text to show has %d bytes, must have at most %d", len(p.shows), maxShown)
	bad(len(p.prefix) < 1 || len(p.prefix) > 64 || strings.ContainsAny(p.prefix, "{}"),
		"key prefix %q must have 1 to 64 bytes and no braces", p.prefix)
	bad(p.fixed && p.renewWhile != nil, "RenewWhile is set, but a fixed lease is not renewed: RenewWhile(nil) unsets it")
	bad(p.lag > 0 && !p.guarded, "replica lag is set, but the restart guard is off")
	return errors.Join(faults...)
}

// checkRelations checks what must suit each other: TTL, max TTL, window, drift, and how often and how fast leases are renewed.
func (p *policy) checkRelations(bad func(is bool, format string, args ...any)) {
	bad(p.ttl > p.maxTTL, "TTL %v is more than the max TTL %v, which a node waits for after it lost its memory: raise WithMaxTTL in every process first",
		p.ttl, p.maxTTL)
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
