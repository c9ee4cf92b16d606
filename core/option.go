package core

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An Option configures a Locker, in New or Open. Those named With… belong to all that share the nodes; the others are
// CallOptions, which New makes the default of every call.
type Option interface{ apply(*policy) }

// A CallOption is for a single acquisition: Acquire, TryAcquire, Do, TryDo or Once; or, in New, Open and With, for all of
// a Locker's.
type CallOption interface {
	Option
	ofCall(*options)
}

type option func(*policy)

func (o option) apply(c *policy) { o(c) }

type callOption func(*options)

func (o callOption) apply(c *policy)   { o(&c.options) }
func (o callOption) ofCall(c *options) { o(c) }

func defaults() policy {
	return policy{
		settings: &settings{Config: node.Config{MaxTTL: unset, Window: defaultWindow, Prefix: "lockkit:", Logger: slog.Default()}},
		options:  options{ttl: 10 * time.Second, retention: 24 * time.Hour, note: thisProcess()},
	}
}

// WithKeyPrefix sets what all Redis keys start with: 1 to 64 bytes without braces. Processes that share
// locks share the prefix. Default "lockkit:".
func WithKeyPrefix(prefix string) Option { return option(func(c *policy) { c.Prefix = prefix }) }

// WithMaxTTL sets the longest TTL that any process uses on these nodes: a node that lost its
// memory does not vote for this long. It is to be the same everywhere. Where it is not, nodes and processes tell
// one another the longest and go by that; only if no node that answers knows it may a process be granted a key
// too soon. To use a longer TTL, raise WithMaxTTL in every process first. At most 24h. Default: the TTL
// of the Locker made by New.
func WithMaxTTL(d time.Duration) Option { return option(func(c *policy) { c.MaxTTL = d }) }

// WithClockWindow sets by how much the wall clocks of a node and this process may differ, request delay
// included; a node outside of it does not take part. It makes steps of the nodes' clocks harmless and
// refuses old requests, at the price of 2.2 windows of each lease. At most a quarter of the TTL; with other
// options at their defaults, a TTL below 2.5s needs a smaller one. It must be the same in all processes. Default
// 500ms; 0 turns it off.
func WithClockWindow(d time.Duration) Option { return option(func(c *policy) { c.Window = d }) }

// WithRestartGuard turns the restart guard on or off. With it, a node that lost its memory (restarted empty,
// flushed, failed over) does not vote until every lease it may have forgotten is over, and accepts completions
// only of leases that it has confirmed since. Default: on for three nodes and more; off for one or two, where a
// newcomer's first lock would have to wait for it. Turn it on for a primary with replicas, and see
// WithReplicaLag. Must be the same in all processes.
func WithRestartGuard(on bool) Option { return option(func(c *policy) { c.guard = &on }) }

// WithReplicaLag sets for how long an old primary may go on serving after one of its replicas was promoted
// (min-replicas-max-lag). For so long, a node that was promoted or restarted confirms no renewal and accepts no
// completion, and its quarantine lasts longer by as much. Only with the restart guard, for nodes with replicas.
// Default 0.
func WithReplicaLag(d time.Duration) Option { return option(func(c *policy) { c.Lag = d }) }

// WithTLS sets how Open speaks TLS with nodes: a CA of one's own (RootCAs), a certificate of the client
// (Certificates), all that a tls.Config has. It is used for every URL, and all of these must be with TLS (rediss://,
// rediss-sentinel://, rediss-cluster://). A server must have a certificate for what it is dialled by; where Sentinels or a
// Cluster name it by an IP address, for the host of the URL, if that is a name; but for ServerName in any case, if that is
// set. New does not use it: its clients are made. Default, and nil: what crypto/tls has by default, with the CAs of the
// system.
func WithTLS(conf *tls.Config) Option { return option(func(c *policy) { c.tls = conf }) }

// WithObserver sets who watches operations. Default: nobody.
func WithObserver(o Observer) Option { return option(func(c *policy) { c.observer = o }) }

// WithLogger sets where the few things go that an operator must know: lost leases, releases that could not
// be confirmed, nodes in trouble, a Close that waits. Keys are hashed in these. Packages built on this one log there as
// well, see [Locker.Logger]. Default: slog.Default().
func WithLogger(l *slog.Logger) Option { return option(func(c *policy) { c.Logger = l }) }

// TTL sets how long a lease lasts on the nodes without renewal, and so how long a key stays taken after
// its holder dies. Default 10s.
func TTL(d time.Duration) CallOption { return callOption(func(c *options) { c.ttl = d }) }

// Detached makes the context of an acquisition bound the wait alone: the lease keeps its values, but not its end, and
// lives until it is released, completed, lost or taken away by Close. It is for those whose context may end before their
// work has: a cancelled request, a task whose handler has to clean up, a scheduler that shuts down. Do and Once then run
// fn in a context that does not end with the caller's. A holder that may hang wants MaxHold, too. Default: the lease's
// context ends with that of the acquisition.
func Detached(on bool) CallOption { return callOption(func(c *options) { c.detached = on }) }

// MaxWait bounds how long Acquire, Do and Once wait, without bounding the lease as a deadline of their
// context would. Then they fail with ErrHeld or ErrUnavailable. Default 0: the context decides.
func MaxWait(d time.Duration) CallOption { return callOption(func(c *options) { c.maxWait = d }) }

// MaxHold ends a lease that long after the grant, though its holder lives: the lease's context ends then, and the lease
// is lost with reason [LossMaxHold]. Nodes free the key when it is released, or a TTL after the last renewal at the
// latest. The holder may move that end: see [Lease.Extend]. Default 0: no end.
func MaxHold(d time.Duration) CallOption { return callOption(func(c *options) { c.maxHold = d }) }

// Retention sets for how long a completed key is not granted again. Nodes keep the record for two hours
// more, so that a clock that jumps ahead by less, and back, drops none. At most ten years. Default 24h.
func Retention(d time.Duration) CallOption { return callOption(func(c *options) { c.retention = d }) }

// Reentrant is for code that does not know whether its caller holds the key already: Do and TryDo with a ctx that
// runs under a lease on key, also through leases on other keys, run fn under that lease instead of failing with ErrHeld,
// and leave its release to whoever acquired it. Nothing is asked of the nodes or told to the observer, and no other option
// counts. The context of fn ends with ctx and with the lease; if the lease was lost while fn ran, the error also
// matches ErrLost. A lease that is over does not count: the key is acquired as ever.
//
// It keeps nobody apart: goroutines that share a ctx run fn under the lease at the same time. Acquire, TryAcquire and
// Once stay refused, because the release or completion of what they return would end the caller's lease. Default: off.
func Reentrant(on bool) CallOption { return callOption(func(c *options) { c.reentrant = on }) }

// Name names the class of keys (job, task type, route) for observers, which must not use keys as labels.
func Name(name string) CallOption { return callOption(func(c *options) { c.name = name }) }

// Note is a text of at most 128 bytes that leases show to whoever looks at the key, beside the name of the call: Holder.Note
// of [Locker.Inspect]. It says who holds the key, and is as long-lived as the lease. Default: host name and process id, as
// in "web-7f9c/4711".
func Note(text string) CallOption { return callOption(func(c *options) { c.note = text }) }

// thisProcess is what leases show of their holder where Note does not say otherwise.
func thisProcess() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d", host[:min(len(host), wire.MaxNote/2)], os.Getpid())
}

// with is p with these options.
func (p policy) with(opts []Option) policy {
	for _, o := range opts {
		if o == nil {
			p.missing++
		} else {
			o.apply(&p)
		}
	}
	return p
}
