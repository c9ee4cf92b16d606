// Package stall names the points of lockkit at which an operating system that is busy may stop a thread for some
// milliseconds. Built with the tag stalls, on Linux, a program stops there on purpose: `make stalls` runs the tests
// that way, so that a test that passes only because of the usual order of events fails at once. In all other builds the
// points are empty functions, which the compiler removes.
//
// The environment of a program that stalls says where it stops:
//
//	LOCKKIT_STALL        the point, such as "leave"; none by default
//	LOCKKIT_STALL_NODE   the index of the node, at points that concern a node; every node by default
//	LOCKKIT_STALL_SHARE  the share of calls that stop, from 0 to 1; 1 by default
//	LOCKKIT_STALL_FOR    the duration of each stall; 5ms by default
//
// Each owner of a point stops a few dozen times at most, so that tests with many requests end.
package stall

// A Point is a place in the code. The points of a batch follow it on its way to a node and back.
type Point string

const (
	// Leave is before a batch takes the requests that wait for it.
	Leave Point = "leave"
	// Call is after the time of sending was read, and before the batch is sent.
	Call Point = "call"
	// Deliver is after the replies have arrived, and before any caller receives one.
	Deliver Point = "deliver"
	// After is when all callers have received their replies, and the next batch may leave.
	After Point = "after"
	// Wake is when a caller that waited for replies runs again.
	Wake Point = "wake"
	// Timer is at the start of a timer's function.
	Timer Point = "timer"
	// Start is at the start of a background goroutine.
	Start Point = "start"
)

// Anywhere stands for the node at points that do not concern a node.
const Anywhere = -1
