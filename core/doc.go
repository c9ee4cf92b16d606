// Package core makes "only one of us does this at a time" true across machines: leases on keys, over N
// independent Redis masters.
//
// # Guarantee
//
// At most one lease per key has a context that has not ended, across all processes that lock on the same
// nodes. A holder's context ends, with a cause, before anybody else can be granted the key. This holds while
// nodes fail in any way (down, hung, slow, emptied), messages are lost, late or doubled, and the nodes'
// clocks step about by less than a day; a majority of nodes has to work for progress, not for safety.
//
// Every lease carries a fencing token, greater than every token reported for the key before it was asked
// for. While nodes keep their memory, that order needs no assumption about time at all.
//
// A key that was completed ([Lease.Complete], [Locker.Once]) is granted to nobody within the retention, as
// long as enough of the nodes that have the record keep their memory: of three nodes, two.
//
// # Non-guarantee
//
// A process can be paused between looking at its context and acting. No lock can undo that: have the
// resource refuse a write whose fencing token is smaller than one it has seen. Nor are effects exactly-once:
// who dies after its work and before recording it leaves it to be done again.
//
// The assumptions, what exactly stays unsafe, and the test that shows each guarantee are in
// docs/guarantees.md; why things are as they are is in docs/decisions.
//
// # Use
//
//	locker, err := core.Open([]string{"redis://redis-a:6379", "redis://redis-b:6379", "redis://redis-c:6379"})
//	…
//	err = locker.Do(ctx, "invoice:42", func(ctx context.Context) error {
//		lease, _ := core.FromContext(ctx)
//		return pay(ctx, 42, lease.FencingToken()) // ctx ends if the lease is lost
//	})
//	…
//	err = locker.Close(ctx) // waits for leases that are held, until ctx ends; then takes them away, and names the keys
//
//	Do, TryDo             run a function under a key; TryDo does not wait for it
//	Once, OnceResult      the same, and never again once it has succeeded, within Retention: later calls get the result
//	Acquire, TryAcquire   a Lease, which Release or Complete ends
//	With                  another policy on the same nodes
//	Close                 drain, and end
//
// [New] takes go-redis clients that the program has; their timeouts and retries do not matter. [Open] makes clients. go-redis
// prints failed dials to stderr; logging.Disable() of its package logging ends that for the whole process.
//
// The context passed to a call governs the wait and the life of the lease, as in sql.DB.BeginTx. [MaxWait] bounds the wait
// alone. A request for a key under one's own lease on it is refused at once, with [ErrHeld]; with [Reentrant], Do and TryDo
// run under that lease.
//
// # Errors
//
// Match errors with errors.Is; an [OpError], by errors.As, has what each node answered. [ClassOf] is this table for a switch.
//
//	ErrHeld               somebody else holds the key, or comes first: skip, or try again after OpError.RetryAfter (0: not known)
//	ErrDone               it is completed: take OpError.Record, do nothing
//	ErrUnavailable        no quorum of nodes: alert, try again later. From Complete: it is open whether the record stands, and
//	                      Complete may be repeated
//	ErrLost               the lease ended before its holder was done: stop, somebody else may be at work. From Complete: it was
//	                      not recorded, OpError.Reason says why
//	ErrClosed             the Locker is closed: the process is ending
//	ErrReleased           only the cause of a context whose lease was given back, or of the use of such a lease
//	ErrInvalid
//	                      a bug in the caller: a key that is empty or too long, a result that is too large, options or
//	                      arguments that are unfit
//	the context's error   the caller gave up. Where its deadline ended the wait, the error also matches what was known: ErrHeld
//	                      or ErrUnavailable
//
// # Nodes
//
// Nodes are Redis masters that know nothing of each other, on machines that fail independently.
//
//	nodes   may be down at once   restart guard
//	1       0                     off: a restart without its data forgets all locks
//	3       1                     on
//	5       2                     on
//
// An even number works, and tolerates no more failures than one node less.
//
// With the guard, a node that has never been used cannot be told from one that lost everything, and does not vote for the max
// TTL. Call Provision of package admin once, from the script that sets the nodes up, right after Open and before any other process
// runs: idle nodes are touched, and a quarantine begins with the first request. Provision refuses where a node is out of reach
// or in use. It cannot tell whether all nodes have lost their memory: do not call it then.
//
// All processes must agree on the list of nodes, key prefix, max TTL, restart guard, replica lag and clock window.
//
// Each server needs maxmemory-policy noeviction, or no maxmemory; Redis 6.2.7 or newer; and the rights in docs/operations.md
// where its ACL restricts users. New refuses what does not pass by itself, and names the node and the mend: wrong credentials,
// missing rights, a database or certificate that is not there, a Cluster's master behind a plain client, a Sentinel, a replica,
// a server that may evict, is too old or is listed twice. What does pass (no connection, BUSY, LOADING) it logs, and looks
// again later. It does not see what is changed afterwards.
//
// Clocks of nodes and processes must agree within the clock window, 500ms by default: run NTP. A node outside of it does not
// vote, and the log says so.
//
// A primary with replicas, a Redis Cluster as a whole, and a primary behind Sentinel count as one node each, and need
// WithRestartGuard(true) and [WithReplicaLag]: see docs/operations.md.
//
// # Options
//
// Options named With… belong to all that share the nodes, and are for New. The others are for New or for a single call:
// Acquire(ctx, key, core.MaxWait(time.Second)). Those that matter most:
//
//	TTL                10s                  how long a key stays taken after its holder dies. The lease is trusted for less:
//	                                        drift and clock window come off
//	WithClockWindow    500ms                by how much clocks may differ. 2.2 windows come off each lease, so a TTL below
//	                                        2.5s needs a smaller one
//	WithMaxTTL         the TTL              the longest in use on these nodes, so how long a quarantine lasts. To use a longer
//	                                        TTL, raise it in every process first: see docs/operations.md
//	MaxWait            until ctx ends       how long to wait for a key
//	MaxHold            no limit             ends the lease of a holder that is stuck; the holder may move that end (Lease.Extend)
//	Reentrant          off                  Do under the caller's own lease on the key runs under that lease
//	Retention          24h                  how long completion records are kept
//	WithRestartGuard   from 3 nodes on      see above
//	WithLogger         slog.Default()       lost leases, nodes in trouble
//	WithObserver, Name none                 for metrics and traces: every operation, its outcome and what each node said
//
// # Cost
//
// A lock and its release are one round trip each, to all nodes at once (TestOneRoundTrip). Together they take at most 20
// allocations with one node, 35 with three and 50 with five, besides those of the network (TestAllocations). What depends on
// the machine is in docs/benchmarks.md, beside other lockers.
//
// # Coming from
//
// docs/migrate.md has what to write instead of redsync, bsm/redislock, rueidislock, gocron-redis-lock, asynq.Unique and
// Redisson, and how to release the change while processes with the old locker still run. What surprises most: the context of
// Acquire ends the lease, not only the wait; leases are renewed, so there is no expiry to choose; work has to look at its
// context, which ends if the lease is lost; new nodes do not vote for one max TTL; and New refuses servers that may lose keys.
// There are no read-write locks, no semaphores, no locks on several keys at once, and no lease that another process can take up.
//
// # How it works
//
// A request for a key goes to all nodes at once, as one script that is atomic on each (Redlock, see
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). A quorum of grants is a lease,
// and the outcome is settled as soon as more votes cannot change it; without a quorum, what was granted is taken
// back. A lease is trusted from the moment its request was sent, on the monotonic clock (on Linux one that also
// runs while the machine sleeps), for its TTL less the drift of clocks:
//
//	sent ──────────────── trusted ────────────────┤ margin ┤ drift, window ┤ TTL on the nodes
//	                                              │        │               │
//	                                    context ends   end of validity   key is free
//
// The watchdog renews it from then on, every third of the TTL. A renewal that a quorum confirms moves the
// whole line; one that fails is tried again until the context ends. A renewal also brings the lease back to
// nodes that lost it or were away: where nobody else has the key now, and, while the node is in quarantine,
// only if the lease cannot have run out there. So nodes can be restarted one after another under a lease that
// goes on. A node that others are in keeps a turn for the lease, and the next round comes early.
//
// Who waits for a key is in a queue on the nodes, by the time at which it began to wait. When the key is free,
// each node tells the first two by pub/sub, and keeps the key for the first three for a short time each. Who is
// not told, whatever the reason, asks by itself.
//
// [Locker.Inspect] runs no script: it reads what the nodes store.
//
// The state of a lease:
//
//	            granted                  Release, Complete
//	pending ───────────────► held ─────────────────────────► over   (cause ErrReleased)
//	   │                      │
//	   │ refused              │ not confirmed in time, taken over, revoked, clock stood still, max hold, closed
//	   ▼                      ▼
//	  over                   lost                                   (cause ErrLost)
//
// # Scripts
//
// The scripts in lua/ are the whole protocol on a node. Each begins with its contract. What keeps them safe,
// in short:
//
//   - A lease's expiry is logical, a number in what the node stores; Redis' own expiry only cleans up.
//   - A script first compares the node's clock with the client's and refuses if they differ too much (clock
//     window), so no step of a clock is ever acted upon.
//   - It then compares the replication history of the server with the one the node's guard record was
//     written under (restart guard). A history changes with every restart, even of a server that kept its data.
//     Where the two differ, memory may have been lost, and the node grants nothing for the longest max TTL that
//     any process has named, to this node or to another.
//   - History and beginning name what a node remembers. A completion counts only in the memory in which the
//     node last vouched for the lease while it was trusted; in a later one it may have forgotten a later holder.
//   - In quarantine nothing that the memory says about leases is believed, since it may be a snapshot.
//   - Every attempt has a name of its own, and once it is over a tombstone on each node where something of it may
//     still arrive.
//   - The fencing counter never falls below a token that anybody was told; the client takes the greatest of a
//     quorum and writes it back before it counts (the timestamps of Attiya, Bar-Noy and Dolev 1995). A grant
//     that nobody was told of is undone by its release.
//   - The queue of those who wait only ever refuses, for 150 ms at most after a hold has ended, so nothing that
//     becomes of it can make two holders.
//   - Completion records are single-decree Paxos with fencing tokens as ballots. Who meets one settles it
//     before anything else.
//   - A reply is read by what its script may answer. Anything else, or a token far ahead of every clock,
//     counts as a failure of the node.
package core
