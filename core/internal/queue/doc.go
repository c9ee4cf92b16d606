// Package queue is who waits for a key: [Local] is the queue of this process, in which callers stand in line, and a [Waiter] is
// one call in the queues of the nodes, which tell it over the subscriptions of a [Board] when its turn has come.
package queue
