package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
	"github.com/lockkit/lockkit/internal/faults"
)

// lockers counts the Lockers of the process that have an observer for their nodes.
var lockers atomic.Uint64

const maxResult = 64 << 10 // bytes of a completion record's result

// An Option configures a Locker, in New or Open. Options named With… apply to all Lockers that share the nodes. The
// other options are CallOptions; New makes them the defaults of every call.
type Option interface{ apply(*policy) }

// A CallOption is for a single acquisition: Acquire, TryAcquire, Do, TryDo, Once, or one of several keys. In New, Open
// and With it is for all acquisitions of a Locker.
type CallOption interface {
	Option
	ofCall()
}

// An option is an Option of the settings.
type option func(*policy)

func (o option) apply(c *policy) { o(c) }

// A callOption is an Option of a call.
type callOption func(*options)

func (o callOption) apply(c *policy) { o(&c.options) }
func (callOption) ofCall()           {}

// The settings belong to a Locker made by New and to all Lockers derived from it. They do not change after New.
type settings struct {
	node.Config // its MaxTTL is unset until it is checked, and is then the TTL
	tls         *tls.Config
	observer    Observer
}

// The options of a call. A Locker's options are the defaults.
type options struct {
	ttl, maxWait, maxHold, retention time.Duration
	detached, reentrant              bool
	name, note                       string
	member                           bool          // a part of a larger operation, which observers are told of in its place
	slotOf                           string        // the key of the semaphore, if the call is for one of its slots
	tune                             func(*timing) // for tests; may be nil
}

// A timing has the durations that follow from the TTL.
type timing struct {
	drift                   float64 // of this machine's clock
	renewEvery, nodeTimeout time.Duration
	retryMin, retryMax      time.Duration
	pauses
}

// The pauses limit the time for which a failed or refused request is not repeated. Whatever the TTL, none is longer
// than longestPause, because a node may be back at any time.
type pauses struct {
	quarantinePause time.Duration // of a call, while too few nodes vote
	renewalPause    time.Duration // of a lease whose renewal has failed, or that lost a node to others
}

const longestPause = time.Second

// pausesOf returns the pauses of leases with this TTL.
func pausesOf(ttl time.Duration) pauses {
	return pauses{quarantinePause: min(ttl/10, longestPause), renewalPause: min(ttl/20, longestPause)}
}

// unset is not a valid value of any option.
const unset time.Duration = math.MinInt64

// A policy has the values of all options and, once they are checked, the values that follow from them.
type policy struct {
	*settings
	options
	timing
	tombstone time.Duration
	nodes     int
	validity  time.Duration // from sending a request until the nodes may grant the key to another caller
	margin    time.Duration // the context ends this long before the end of validity

	// Arguments of requests, boxed once to save allocations.
	ttlMillis, tombstoneMillis wire.Millis // the TTL; the life of a tombstone
	metadata                   string      // note and name, for leases without a hint

	// A node that refuses a renewal keeps others out for turnMillis, so that the next renewal finds it free.
	turnMillis wire.Millis
}

// defaults returns the policy without any options. It is not checked.
func defaults() policy {
	config := node.Config{
		MaxTTL: unset,
		Window: defaultWindow,
		Prefix: "lockkit:",
		Logger: slog.Default(),
	}
	return policy{
		settings: &settings{Config: config},
		options:  options{ttl: 10 * time.Second, retention: 24 * time.Hour, note: thisProcess()},
	}
}

// thisProcess returns the default note of leases.
func thisProcess() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d", host[:min(len(host), wire.MaxNote/2)], os.Getpid())
}

// newPolicy returns the policy of a Locker over n nodes. The error names every invalid option.
func newPolicy(opts []Option, n int) (policy, error) {
	var f faults.List
	p := defaults()
	p.nodes = n
	p.Guarded = n >= 3
	faults.Apply(&f, opts, func(o Option) { o.apply(&p) })

	f.Check(p.Logger == nil, "logger is nil (to be silent: slog.New(slog.DiscardHandler))")
	if p.Logger != nil {
		p.Logger = withoutKeys(p.Logger)
	}
	isBadPrefix := len(p.Prefix) < 1 || len(p.Prefix) > 64 || strings.ContainsAny(p.Prefix, "{}")
	f.Check(isBadPrefix, "key prefix %q must have 1 to 64 bytes and no braces", p.Prefix)

	if p.MaxTTL == unset {
		p.MaxTTL = p.ttl
	} else {
		checkRange(&f, "max TTL", p.MaxTTL, time.Millisecond, wire.ExpirySlack)
	}
	if p.Window != 0 { // 0: clocks are not checked
		checkRange(&f, "clock window", p.Window, time.Millisecond, wire.ExpirySlack/4)
	}
	checkRange(&f, "replica lag", p.Lag, 0, wire.ExpirySlack)
	f.Check(p.Lag > 0 && !p.Guarded, "replica lag is set, but the restart guard is off")

	p.check(&f)
	p.derive()
	p.Timeout = p.nodeTimeout
	return p, errors.Join(f...)
}

// containPanics replaces the logger and the observer by ones that contain the panics of the user's code. From then on
// the Locker has no others, so every call of them is contained.
func (p *policy) containPanics() {
	p.Logger = callback.Logger(p.Logger)
	p.observer = p.observer.containPanics(p.Logger)
	observe := p.observer.Node
	if observe == nil {
		return
	}

	locker := lockers.Add(1)
	p.Observe = func(ctx context.Context, op wire.Op, n *node.Node, v *quorum.Vote) {
		if int(op) >= len(opKinds) {
			return
		}
		reply := replyOf(n, v)
		reply.LockerID = locker
		reply.Of = p.nodes
		observe(ctx, opKinds[op], reply)
	}
}

// withCallOptions returns p with the options of a call, or of another Locker.
func (p *policy) withCallOptions(opts []CallOption) (*policy, error) {
	if len(opts) == 0 {
		return p, nil
	}
	own := *p
	var f faults.List
	faults.Apply(&f, opts, func(o CallOption) { o.apply(&own) })
	own.check(&f)
	if f != nil {
		return nil, fmt.Errorf("lockkit: %w: %w", ErrInvalid, errors.Join(f...))
	}

	if own.name != p.name || own.note != p.note {
		own.metadata = wire.Holder{Note: own.note, Name: own.name}.Carried()
	}
	if own.ttl != p.ttl || own.tune != nil {
		own.derive()
	}
	return &own, nil
}

// derive sets the values that follow from settings and options.
func (p *policy) derive() {
	p.timing = timing{
		drift:       clockDrift,
		renewEvery:  p.ttl / 3,
		nodeTimeout: defaultNodeTimeout(p.ttl),
		retryMin:    50 * time.Millisecond,
		retryMax:    250 * time.Millisecond,
		pauses:      pausesOf(p.ttl),
	}
	if p.tune != nil {
		p.tune(&p.timing)
	}

	p.validity = validity(p.ttl, p.drift, p.Window)
	p.margin = cancelMargin(p.ttl)
	p.tombstone = tombstoneTTL(p.Window, p.nodeTimeout, p.MaxTTL)
	p.ttlMillis = wire.MillisOf(p.ttl)
	p.tombstoneMillis = wire.MillisOf(p.tombstone)
	p.turnMillis = wire.MillisOf(p.renewalPause + p.nodeTimeout)
	p.metadata = wire.Holder{Note: p.note, Name: p.name}.Carried()
}

// opKinds has the kinds of the requests that are reported to observers.
var opKinds = [...]OpKind{
	wire.OpAcquire:  OpAcquire,
	wire.OpRenew:    OpRenew,
	wire.OpRelease:  OpRelease,
	wire.OpComplete: OpComplete,
	wire.OpTouch:    OpTouch,
}

// check adds the invalid options of a call to f. It runs for each call that has options, so it allocates only if an
// option is invalid.
func (p *policy) check(f *faults.List) {
	before := len(*f)
	checkRange(f, "TTL", p.ttl, time.Millisecond, wire.ExpirySlack)

	// TTL, max TTL and clock window are compared only if each is in its range.
	inRange := len(*f) == before && p.Window <= wire.ExpirySlack/4
	if inRange {
		p.checkTTL(f)
	}

	checkRange(f, "retention", p.retention, time.Millisecond, maxRetention)
	if p.maxWait < 0 {
		f.Check(true, "max wait is %v, must not be negative", p.maxWait)
	}
	if p.maxHold < 0 {
		f.Check(true, "max hold is %v, must not be negative", p.maxHold)
	}
	if len(p.note) > wire.MaxNote {
		f.Check(true, "the note has %d bytes, must have at most %d", len(p.note), wire.MaxNote)
	}
}

// checkTTL adds a TTL to f that does not suit the max TTL or the clock window.
func (p *policy) checkTTL(f *faults.List) {
	if p.ttl > p.MaxTTL {
		f.Check(
			true,
			"TTL %v is more than the max TTL %v, which a node waits for after it lost its memory: "+
				"raise WithMaxTTL in every process first",
			p.ttl, p.MaxTTL,
		)
	}
	if !ttlFitsWindow(p.ttl, p.Window) {
		f.Check(
			true,
			"TTL %v is too short for a clock window of %v: it must be at least %v, "+
				"or WithClockWindow smaller in every process",
			p.ttl, p.Window, leastTTL(p.Window),
		)
	}
}

// checkRange adds a duration to f that is out of its range.
func checkRange(f *faults.List, name string, d, least, most time.Duration) {
	if d < least || d > most {
		f.Check(true, "%s is %v, must be between %v and %v", name, d, least, most)
	}
}

// ttlFitsWindow reports whether a lease with this TTL can be trusted for long enough to be renewed.
func ttlFitsWindow(ttl, window time.Duration) bool {
	trusted := validity(ttl, clockDrift, window) - cancelMargin(ttl)
	return window <= ttl/4 && trusted > ttl/3+defaultNodeTimeout(ttl)
}

// leastTTL returns the shortest TTL, in steps of 10ms, that fits a clock window.
func leastTTL(window time.Duration) time.Duration {
	ttl := max(4*window, 10*time.Millisecond).Truncate(10 * time.Millisecond)
	for !ttlFitsWindow(ttl, window) {
		ttl += 10 * time.Millisecond
	}
	return ttl
}

// isSlot reports whether the lock is a slot of a semaphore.
func (p *policy) isSlot() bool { return p.slotOf != "" }

// observe starts an operation. end is nil if there is no observer for its end, so that no outcome needs to be built.
func (p *policy) observe(
	ctx context.Context, kind OpKind, key string, try bool, token uint64,
) (derived context.Context, end func(Outcome)) {
	if p.observer.Start == nil {
		return ctx, nil
	}
	return p.observer.Start(ctx, Op{
		Kind:  kind,
		Name:  p.name,
		Key:   key,
		Keys:  1,
		Nodes: p.nodes,
		Try:   try,
		Token: token,
	})
}

// observeSet starts an operation on several keys, as observe does.
func (p *policy) observeSet(
	ctx context.Context, kind OpKind, keys []string, try bool,
) (derived context.Context, end func(Outcome)) {
	if p.observer.Start == nil {
		return ctx, nil
	}
	return p.observer.Start(ctx, Op{
		Kind:  kind,
		Name:  p.name,
		Key:   keys[0],
		Keys:  len(keys),
		Nodes: p.nodes,
		Try:   try,
	})
}
