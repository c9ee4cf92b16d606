package core

import (
	"crypto/tls"
	"log/slog"
	"time"
)

// WithKeyPrefix sets the beginning of all Redis keys: 1 to 64 bytes without braces. Processes with different prefixes
// do not exclude each other. The default is "lockkit:".
func WithKeyPrefix(prefix string) Option {
	return option(func(c *policy) { c.Prefix = prefix })
}

// WithMaxTTL sets the longest TTL that any process uses on these nodes, at most 24h: a node that lost its memory does
// not vote for this long. It must be the same in all processes. Nodes report the longest value to processes that know
// less, but a process that no answering node has told may be granted a key too soon. To use a longer TTL, raise
// WithMaxTTL in every process first. Nodes keep the longest value that any process named, also after it is lowered
// everywhere, until all processes are stopped and an operator calls "lockctl lower-max-ttl". The default is the TTL
// of the Locker.
func WithMaxTTL(d time.Duration) Option {
	return option(func(c *policy) { c.MaxTTL = d })
}

// WithClockWindow sets how much the wall clocks of a node and this process may differ, request delay included. A node
// outside of the window does not vote. A lease is trusted for 2.2 windows less than the TTL, and what is left must suffice
// for a renewal: the default needs a TTL of at least 2.47s, a TTL of 1s a window of at most 188ms. It must be the same in
// all processes. If it is 0, clocks are not checked. The default is 500ms.
func WithClockWindow(d time.Duration) Option {
	return option(func(c *policy) { c.Window = d })
}

// WithRestartGuard turns the restart guard on or off. With the guard, a node that lost its memory (restarted empty,
// flushed, failed over) does not vote until every lease that it may have forgotten has ended, and accepts completions
// only of leases that it has confirmed since. It must be the same in all processes. Turn it on for a primary with
// replicas; see [WithReplicaLag]. The default is on for three nodes or more, and off for one or two, so that the
// first lock on a new node need not wait.
func WithRestartGuard(on bool) Option {
	return option(func(c *policy) { c.Guarded = on })
}

// WithReplicaLag sets how long an old primary may go on serving after one of its replicas was promoted
// (min-replicas-max-lag and a second). For this long, a node that was promoted or restarted confirms no renewal and
// no completion, and its quarantine is longer by as much. It requires the restart guard. The default is 0, for nodes
// without replicas.
func WithReplicaLag(d time.Duration) Option {
	return option(func(c *policy) { c.Lag = d })
}

// WithTLS sets the TLS configuration for Open, such as a private CA (RootCAs) or a client certificate (Certificates).
// All URLs must then use TLS (rediss://, rediss-sentinel://, rediss-cluster://). The server certificate must match,
// in this order: ServerName, if it is set; the URL's host, if a Sentinel or Cluster reports an IP address; otherwise
// the address dialed. New does not use it. The default is that of crypto/tls, with the CAs of the system.
func WithTLS(conf *tls.Config) Option {
	return option(func(c *policy) { c.tls = conf })
}

// WithObserver sets the Observer of all operations, for metrics and traces. The default is none.
func WithObserver(o Observer) Option {
	return option(func(c *policy) { c.observer = o })
}

// WithLogger sets the logger, also for the packages built on this one; see [Locker.Logger]. lockkit logs lost leases,
// unconfirmed releases, nodes in trouble and a Close that waits, with hashes in place of keys. The default is
// slog.Default().
func WithLogger(l *slog.Logger) Option {
	return option(func(c *policy) { c.Logger = l })
}

// TTL sets how long a lease lasts on the nodes without renewal, and so how long a key stays taken after its holder
// dies. It must not exceed [WithMaxTTL]. A lease is renewed every third of it. The default is 10s.
//
// A lease that is not renewed ends before its TTL does, because clocks may differ: after 7.7s of 10s, 3.3s of 5s and
// 1.5s of 3s, with the default of [WithClockWindow]. So a short TTL loses leases in short outages. The shortest is 2.47s
// with that default; a smaller window allows a shorter one.
func TTL(d time.Duration) CallOption {
	return callOption(func(c *options) { c.ttl = d })
}

// Detached keeps the lease when the context of its acquisition ends: that context limits only the wait. The lease
// keeps the context's values but not its cancellation, and lasts until it is released, completed, lost, or taken away
// by Close. Do, DoAll and Once then run fn in such a context. Combine it with MaxHold if the holder may hang. The
// default is off.
func Detached(on bool) CallOption {
	return callOption(func(c *options) { c.detached = on })
}

// MaxWait limits how long Acquire, Do and Once wait, without limiting the lease as a deadline of the context would. Of
// AcquireAll and DoAll, it limits the wait for all keys together. After that they return ErrHeld or ErrUnavailable. If
// it is 0 (the default), the context decides.
func MaxWait(d time.Duration) CallOption {
	return callOption(func(c *options) { c.maxWait = d })
}

// MaxHold ends a lease that long after its grant even if its holder works: the lease is lost with reason
// [LossMaxHold]. The key is free when it is released, and at the latest a TTL after the last renewal. [Lease.Extend]
// moves the end. Of AcquireAll and DoAll, it counts from the grant of the last key. If it is 0 (the default), leases
// have no end.
func MaxHold(d time.Duration) CallOption {
	return callOption(func(c *options) { c.maxHold = d })
}

// Retention sets how long a completed key is not granted again, at most ten years. Nodes keep the record for two hours
// more, in case a clock jumps ahead and back. The default is 24h.
func Retention(d time.Duration) CallOption {
	return callOption(func(c *options) { c.retention = d })
}

// Reentrant makes Do and TryDo run fn under the lease on the key that ctx already holds, instead of returning ErrHeld.
// DoAll and TryDoAll then acquire only the keys on which ctx holds no lease. That lease is not released afterwards. No
// request is sent, the observer is not called, and all other options are ignored. The context of fn ends with ctx and
// with the lease; if the lease is lost meanwhile, the error also matches ErrLost. If ctx holds no live lease on the
// key, the key is acquired as usual.
//
// Goroutines that share a ctx do not exclude each other. Acquire, TryAcquire, AcquireAll, TryAcquireAll and Once ignore
// Reentrant, because ending the lease that they return would end the caller's. The default is off.
func Reentrant(on bool) CallOption {
	return callOption(func(c *options) { c.reentrant = on })
}

// Name sets the class of keys (job, task type, route) that observers report in place of the key. Names must be few. The
// default is none.
func Name(name string) CallOption {
	return callOption(func(c *options) { c.name = name })
}

// Note attaches a text of at most 128 bytes to leases; [Locker.Inspect] returns it as Holder.Note. The default is
// host name and process id, such as "web-7f9c/4711".
func Note(text string) CallOption {
	return callOption(func(c *options) { c.note = text })
}
