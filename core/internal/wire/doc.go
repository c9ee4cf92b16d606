// Package wire is what is said to a node, and what it answers: a type for each request and reply, their encoding, the names of
// keys, and the scripts that run on the nodes. It knows no clock and does no I/O.
//
// A [Keyspace] names keys, a [Lock] an attempt to get one of them. The methods of both make a [Request], a [Head] has what all
// requests say of the Locker, and Encode makes a command of one Request or of several. [Request.Decode] reads a reply.
//
// # Scripts
//
// The scripts in lua are the whole protocol on a node. Each begins with its contract. What keeps them safe:
//
//   - A lease's expiry is logical, a number in what the node stores; Redis's own expiry only cleans up.
//   - A script first compares the node's clock with the client's, and refuses if they differ by more than the clock window.
//     Where there is a guard, it asks for the role of the server before that, so that a replica is known for what it is.
//   - It then compares the replication history of the server with that of the guard record. A history changes with every
//     restart, even of a server that kept its data. If they differ, the node grants nothing for the longest max TTL that any
//     process has named.
//   - History and beginning name what a node remembers. A completion counts only in the memory in which the node last
//     confirmed the lease while it was trusted.
//   - In quarantine, what the memory says about leases is not believed: it may be a snapshot.
//   - Every attempt has its own name, and leaves a tombstone where a request of it may still arrive.
//   - The fencing counter never falls below a token that was reported; the client takes the greatest of a quorum and writes
//     it back before it counts (the timestamps of Attiya, Bar-Noy and Dolev 1995).
//   - The queue of waiters only refuses, for 150 ms at most after a hold has ended: it cannot make two holders.
//   - Completion records are single-decree Paxos with fencing tokens as ballots. A client that finds an unfinished record
//     completes it first.
//   - A reply that its script cannot give, or a token far ahead of every clock, counts as a failure of the node.
package wire
