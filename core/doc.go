// Package core implements distributed locks: renewable leases on keys, held on a quorum of N independent Redis servers
// (nodes).
//
//	locker, err := core.Open([]string{"redis://redis-a:6379", "redis://redis-b:6379", "redis://redis-c:6379"})
//	…
//	err = locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
//		lease, _ := core.FromContext(ctx)
//		return pay(ctx, 42, lease.FencingToken()) // ctx ends if the lease is lost
//	})
//	…
//	err = locker.Close(ctx) // waits until all leases are released, or until ctx ends: then it ends the leases that are left
//
//	Do, TryDo             run a function under a key; TryDo does not wait
//	Once                  as Do, and records the success: later calls return ErrDone, for as long as Retention says
//	OnceResult            as Once, with a result, which later calls return
//	Acquire, TryAcquire   return a Lease; to end it, call its Release or Complete
//	DoAll, TryDoAll       as Do and TryDo, under several keys at once
//	AcquireAll, …         as Acquire and TryAcquire, for several keys; the result is Leases
//	With                  a Locker on the same nodes with other options
//	Inspect, Ready        who holds a key; whether a lock could be granted now
//
// The context passed to a call governs both the wait and the life of the lease, as in sql.DB.BeginTx; [MaxWait]
// limits the wait alone. If you hold a lease on a key and pass its context to a call for the same key, the call
// returns ErrHeld. With [Reentrant], Do and DoAll run under that lease instead. [Open] makes the go-redis clients.
// [New] takes yours; for Sentinel and Cluster clients, see docs/operations.md. A key has 1 to 512 bytes. Build
// it with [Key], as the adapters do: Key("invoice", "42") and "invoice:42" are different keys, which do not exclude each
// other.
//
// # Guarantee
//
// At any time at most one lease on a key has a live context, across all processes that use the same nodes. A lease's
// context ends, with a cause, before the key can be granted again. This holds even if messages are lost, delayed or
// duplicated. It also holds if a node's clock jumps by less than a day, because processes check the clocks of the
// nodes. [WithClockWindow] can turn that check off. With the restart guard (see Nodes), it also holds if nodes crash,
// hang or lose all their data. Locks are granted and renewed while a quorum, more than half of the nodes, is well.
//
// Every lease has a fencing token, a number. A later lease on the same key has a greater token (precisely: guarantee
// 3 in docs/guarantees.md). If a node loses its data while the restart guard is off, later tokens may be smaller than
// earlier ones.
//
// Several keys ([Locker.DoAll]) are held all or none, and their common context ends as soon as one of them is lost.
// Calls take keys in sorted order, so calls that hold nothing else while they wait never wait for one another in a
// circle.
//
// A completed key ([Lease.Complete], [Locker.Once]) is not granted again within the retention, as long as a quorum of
// the nodes keeps its record: the only node, two of three, or three of five.
//
// # Non-guarantee
//
// A process can be paused between looking at its context and acting. Make the store reject a write whose fencing
// token is smaller than the largest it has seen. Effects are not exactly-once: if a process dies after the work but
// before recording it, the work is repeated. Package core/fence does both for effects in PostgreSQL, MariaDB and SQLite:
// it checks the token and records the work in the transaction that has the effect. Assumptions, limits and tests:
// docs/guarantees.md.
//
// # Errors
//
// Match errors with errors.Is, or switch on [ClassOf]. With errors.As, an [OpError] has each node's answer.
//
//	ErrHeld               the key is held, or another waiter comes first: skip, or try again after OpError.RetryAfter (0: unknown)
//	ErrDone               the key is completed: take OpError.Record
//	ErrUnavailable        fewer than a quorum of nodes answered and could vote: alert, and repeat the call later
//	ErrLost               the lease ended early: stop. If Complete returns it, the completion is not confirmed. Some nodes may have
//	                      recorded it, and then later callers may get ErrDone
//	ErrClosed             the Locker is closed
//	ErrReleased           the cause of a lease's context after Release or Complete; also returned when such a lease is used
//	ErrInvalid            a bug in the caller: invalid key, options or arguments
//	the context's error   ctx ended. If the deadline of ctx ended a wait, the error also matches the reason for the wait, ErrHeld
//	                      or ErrUnavailable, if that is known
//
// # Nodes
//
//	nodes   may be down at once   restart guard
//	1       0                     off: a node that restarts without its data forgets all locks
//	3       1                     on
//	5       2                     on
//
// Nodes are independent Redis servers on machines that fail independently, version 6.2.7 or later, with
// maxmemory-policy noeviction. A primary behind Sentinels, or a whole Cluster, is one node: see docs/deploy.md. The
// list of nodes must be the same in all processes (docs/deploy.md says how to change it), and so must WithKeyPrefix,
// WithMaxTTL, WithRestartGuard, WithReplicaLag and WithClockWindow. If processes use different TTLs, set WithMaxTTL
// in all of them to the longest. A node whose clock differs from a process's by more than the clock window does not
// vote for that process: run NTP.
//
// With the restart guard, a node that may have lost its data is in quarantine: it answers, but casts no vote. The
// quarantine begins when any process first asks the node for a vote after the loss (New does so, too), and lasts for
// the max TTL plus the replica lag (WithReplicaLag). By then every lease that the node may have forgotten is over. A
// new node is in quarantine, too, because the guard cannot tell it from one that lost its data. To skip the wait for
// nodes that were never used, call Provision of package admin once. Never call it for nodes that lost their data.
//
// New fails on problems that will not go away on their own, and says which node is affected and how to fix it. Other
// problems (no connection, LOADING) are logged, and the node is examined again later.
//
// # Options
//
// Options whose names begin with "With" are for New and Open, and hold for all calls. All other options can also be
// given to a single call, as in Acquire(ctx, key, core.MaxWait(time.Second)). Those that matter most:
//
//	TTL                10s                  how long a key stays taken after its holder dies; at least 2.47s with the default clock window
//	WithClockWindow    500ms                how much clocks may differ; 2.2 times this (1.1s) is taken off the time that a lease is valid
//	WithMaxTTL         the TTL              the longest TTL in use; a quarantine lasts that long, plus the replica lag
//	MaxWait            until ctx ends       how long to wait for a key; a wait also ends when no quorum has been reachable for a TTL
//	MaxHold            no limit             ends the lease of a holder that is stuck; Lease.Extend moves the end
//	Retention          24h                  how long completion records are kept
//	WithLogger         slog.Default()       lost leases, nodes in trouble
//	WithObserver, Name none                 metrics and traces
//
// # Cost
//
// Without contention, a lock and its release take one round trip each, to all nodes at once (TestOneRoundTrip).
// Together they make at most 20 allocations on one node, 35 on three and 50 on five (TestAllocations). For figures
// see docs/benchmarks.md.
//
// # How it works
//
// A request goes to all nodes at once, as one script that is atomic on each (Redlock, see
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). A quorum of grants is a lease. If fewer
// nodes grant it, their grants are taken back. The validity of a lease counts from the moment its request was sent,
// on the monotonic clock. It is the TTL minus an allowance for clock drift and for the difference between clocks. The
// context ends a margin earlier:
//
//	sent ─────────────── context live ────────────┤ margin ┤ drift, window ┤ TTL on the nodes
//	                                              │        │               │
//	                                    context ends   end of validity   key is free
//
// The watchdog renews the lease in the background, every third of the TTL. A renewal also brings the lease back
// to nodes that lost it or were away, so a lease survives if nodes are restarted one after another. Waiters are
// queued on the nodes, ordered by when they started waiting; a release notifies the first two by pub/sub, and a
// waiter that is not notified asks again on its own.
//
//	            granted                  Release, Complete
//	pending ───────────────► held ─────────────────────────► over   (cause ErrReleased)
//	   │                      │
//	   │ refused              │ not confirmed in time, taken over, revoked, machine suspended, max hold, closed
//	   ▼                      ▼
//	  over                   lost                                   (cause ErrLost)
//
// The scripts are in internal/wire/lua, each with its contract. Coming from another locker: docs/migrate.md.
package core
