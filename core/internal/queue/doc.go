// Package queue has the two kinds of queue in which a call waits for a key. [LocalQueue] queues the calls of this process.
// A [Waiter] is one call in the queues that the nodes keep; a [Board] subscribes to the nodes, and wakes a Waiter
// when they publish that its turn has come.
package queue
