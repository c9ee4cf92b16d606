// Package core implements distributed locks: renewable leases on keys, held on a quorum of N independent Redis servers
// (nodes).
//
//	locker, err := core.Open([]string{"redis://redis-a:6379", "redis://redis-b:6379", "redis://redis-c:6379"})
//	…
//	err = locker.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		lease, _ := core.FromContext(ctx)
//		return pay(ctx, 42, lease.FencingToken()) // ctx ends if the lease is lost
//	})
//	…
//	err = locker.Close(ctx) // waits for leases until ctx ends; then ends them, and names their keys
//
//	Do, TryDo             run a function under a key; TryDo does not wait
//	Once, OnceResult      the same, and record success; later calls get ErrDone, or the result, within Retention
//	Acquire, TryAcquire   return a Lease, which Release or Complete ends
//	With                  other options on the same nodes
//	Inspect, Ready        who holds a key; whether a lock could be granted now
//
// The context passed to a call governs the wait and the life of the lease, as in sql.DB.BeginTx; [MaxWait] limits the wait
// alone. A context that holds a key cannot lock it again (ErrHeld), except with [Reentrant]. [New] takes go-redis clients,
// whose timeouts and retries do not matter; [Open] makes them. A key has 1 to 512 bytes; [Key] builds one from parts.
//
// # Guarantee
//
// At any time at most one lease on a key has a live context, across all processes that use the same nodes. A lease's
// context ends, with a cause, before the key can be granted again. This holds while nodes fail in any way, messages are
// lost, late or doubled, and clocks of nodes step by less than a day. Progress needs a majority of the nodes.
//
// Every lease has a fencing token, greater than every token reported for the key before.
//
// A completed key ([Lease.Complete], [Locker.Once]) is not granted again within the retention, while enough nodes with the
// record keep their memory: of three nodes, two.
//
// # Non-guarantee
//
// A process can be paused between looking at its context and acting. Make the store reject a write whose fencing token is
// smaller than the largest it has seen. Effects are not exactly-once: if a process dies after the work but before recording
// it, the work is repeated. Assumptions, limits and tests: docs/guarantees.md.
//
// # Errors
//
// Match errors with errors.Is; [ClassOf] is this table for a switch. An [OpError], by errors.As, has each node's answer.
//
//	ErrHeld               the key is held, or another waiter comes first: skip, or try again after OpError.RetryAfter (0: unknown)
//	ErrDone               it is completed: take OpError.Record
//	ErrUnavailable        no quorum of nodes: alert, try again later; a Complete may be repeated
//	ErrLost               the lease ended early: stop. From Complete: it was not recorded, OpError.Reason says why
//	ErrClosed             the Locker is closed
//	ErrReleased           the cause of a lease's context after Release; also returned when a released lease is used
//	ErrInvalid            a bug in the caller: invalid key, options or arguments
//	the context's error   the caller gave up; if its deadline ended the wait, ErrHeld or ErrUnavailable match, too
//
// # Nodes
//
//	nodes   may be down at once   restart guard
//	1       0                     off: a restart without its data forgets all locks
//	3       1                     on
//	5       2                     on
//
// Nodes are independent Redis servers on machines that fail independently, version 6.2.7 or later, with maxmemory-policy
// noeviction. All processes must agree on the list of nodes, key prefix, max TTL, restart guard, replica lag and clock
// window. Clocks must agree within the clock window: run NTP. A primary behind Sentinels, or a whole Cluster, is one node:
// see docs/deploy.md.
//
// With the guard, a new node cannot be told from one that lost everything, so it does not vote for the max TTL. Call
// Provision of package admin once, when the nodes are new, to skip the wait; never when all of them lost their data.
//
// New fails on problems that will not go away on their own, and says which node is affected and how to fix it. Other
// problems (no connection, LOADING) are logged, and the node is examined again later.
//
// # Options
//
// Options named With… are for New and apply to all Lockers on the nodes. The others are for New or for a single call:
// Acquire(ctx, key, core.MaxWait(time.Second)). Those that matter most:
//
//	TTL                10s                  how long a key stays taken after its holder dies
//	WithClockWindow    500ms                how much clocks may differ; a lease is trusted for 2.2 times that less (1.1s)
//	WithMaxTTL         the TTL              the longest TTL in use, and so the length of a quarantine
//	MaxWait            until ctx ends       how long to wait for a key
//	MaxHold            no limit             ends the lease of a holder that is stuck; Lease.Extend moves the end
//	Retention          24h                  how long completion records are kept
//	WithLogger         slog.Default()       lost leases, nodes in trouble
//	WithObserver, Name none                 metrics and traces
//
// # Cost
//
// A lock and its release take one round trip each, to all nodes at once (TestOneRoundTrip), and at most 20 allocations
// together with one node, 35 with three, 50 with five (TestAllocations). Figures: docs/benchmarks.md.
//
// # How it works
//
// A request goes to all nodes at once, as one script that is atomic on each (Redlock, see
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). A quorum of grants is a lease; without one,
// what was granted is taken back. A lease is trusted from the moment its request was sent, on the monotonic clock:
//
//	sent ──────────────── trusted ────────────────┤ margin ┤ drift, window ┤ TTL on the nodes
//	                                              │        │               │
//	                                    context ends   end of validity   key is free
//
// The watchdog renews it every third of the TTL. A renewal also brings the lease back to nodes that lost it or were away, so
// nodes can be restarted one after another under a lease. Waiters are queued on the nodes, ordered by when they started
// waiting; a release notifies the first two by pub/sub, and a waiter that is not notified asks by itself.
//
//	            granted                  Release, Complete
//	pending ───────────────► held ─────────────────────────► over   (cause ErrReleased)
//	   │                      │
//	   │ refused              │ not confirmed in time, taken over, revoked, clock stood still, max hold, closed
//	   ▼                      ▼
//	  over                   lost                                   (cause ErrLost)
//
// The scripts are in internal/wire/lua, each with its contract. Coming from another locker: docs/migrate.md.
package core
