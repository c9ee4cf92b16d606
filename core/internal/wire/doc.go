// Package wire defines the requests to a node and its replies: a type for each of them, their encoding, the names of
// keys, and the scripts that run on the nodes. It reads no clock and does no I/O.
//
// A [Keyspace] names keys, and a [Lock] names an attempt to get a key. The methods of both make a [Request]. A
// [Preamble] has the settings of the Locker that all requests contain; its method Encode makes a command of one or
// several requests. [Request.Decode] reads a reply.
//
// # Scripts
//
// The scripts in lua implement the whole protocol on a node. Each begins with its contract. These rules keep them safe:
//
//   - A lease's expiry is logical, a number in the value of a key; Redis's own expiry only cleans up.
//   - A script first compares the node's clock with the client's, and refuses if they differ by more than the clock
//     window. With the restart guard, it checks the role of the server first, so that a replica says that it is one.
//   - It then compares the replication history of the server with that of the guard record. A history changes with
//     every restart, even of a server that kept its data. If they differ, the node grants nothing for the longest max
//     TTL that a process has sent.
//   - A memory of a node is named by its replication history and the time at which it began. A completion counts only
//     in the memory in which the node last confirmed the lease while the lease was trusted.
//   - In quarantine, a node does not rely on the leases that it stores: they may come from a snapshot.
//   - Every attempt has its own name, and leaves a tombstone on a node if a request of it may still arrive there.
//   - The fencing counter never falls below a token that was reported. The client takes the greatest token of a quorum,
//     and writes it back before the lease counts (the timestamps of Attiya, Bar-Noy and Dolev 1995).
//   - The queue of waiters only refuses, for 150 ms at most after a hold has ended: it cannot make two holders.
//   - Completion records are single-decree Paxos with fencing tokens as ballots. A client that finds an unfinished
//     record completes it first.
//   - A reply that the script cannot give, or a token far ahead of every clock, counts as a failure of the node.
package wire
