// Package tool is what lockctl needs of core that no service must have: it has to work when nodes are broken, and reads
// what they store. Core fills it in when it is loaded, with functions of its own types, which this package cannot name.
package tool

var (
	// Looking is a core.Option. With it New starts although nodes are unfit, and no node is touched, which would write
	// guard records and begin quarantines.
	Looking any

	// Stored is a func(text string, clock time.Time) core.KeyOnNode: what a node has of a key, given the first KiB of what
	// it stores and its clock. A result of a record is not in it.
	Stored any

	// Settled is a func(nodes []core.KeyOnNode) core.KeyState: what a quorum of nodes agrees on.
	Settled any
)
