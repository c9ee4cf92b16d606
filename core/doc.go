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
// # How it works
//
// A request for a key goes to all nodes at once, as one script that is atomic on each (Redlock, see
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). A quorum of grants is a lease,
// and the outcome is settled as soon as more votes cannot change it. A lease is trusted from the moment its
// request was sent, on the monotonic clock, for its TTL less the drift of clocks:
//
//	sent ──────────────── trusted ────────────────┤ margin ┤ drift, window ┤ TTL on the nodes
//	                                              │        │               │
//	                                    context ends   end of validity   key is free
//
// The watchdog renews it from then on, every third of the TTL. A renewal that a quorum confirms moves the
// whole line; one that fails is tried again until the context ends. A renewal also brings the lease back to
// nodes that lost it or were away: where nobody else has the key now, and, while the node is in quarantine,
// only if the lease cannot have run out there. A node that others are in keeps a turn for the lease, and the
// next round comes early.
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
//	   │ refused              │ not confirmed in time, taken over, clock stood still, max hold, linger, unhealthy, closed
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
//     written under (restart guard). Where they differ, memory may have been lost, and the node grants
//     nothing for the longest max TTL that any process has named, to this node or to another.
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
