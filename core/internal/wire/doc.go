// Package wire is what is said to a node, and what it answers: a type for each request and reply, their encoding, the names of
// keys, and the scripts that run on the nodes. It knows no clock and does no I/O.
//
// A [Keyspace] names keys, a [Lock] an attempt to get one of them. The methods of both make a [Request], a [Head] has what all
// requests say of the Locker, and Encode makes a command of one Request or of several. [Request.Decode] reads a reply.
package wire
