package core

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// assumedPool is how many connections a client has that does not tell.
const assumedPool = 10

// acquisitionsAtOnce is how many acquisitions may use the connections of one pool of c at the same time: half
// of them, so that those who ask for keys leave connections for what holders need, which is renewals,
// releases and completions. Over a single connection a renewal waits for one acquisition at most.
func acquisitionsAtOnce(c redis.UniversalClient) int {
	pool, limit := assumedPool, 0
	switch c := c.(type) {
	case interface{ Options() *redis.Options }:
		pool, limit = c.Options().PoolSize, c.Options().MaxActiveConns
	case interface{ Options() *redis.ClusterOptions }: // for each server
		pool, limit = c.Options().PoolSize, c.Options().MaxActiveConns
	}
	if limit > 0 {
		pool = min(pool, limit)
	}
	return max(1, pool/2)
}

// slots returns what bounds the acquisitions over the connections to one server: to the master of a shard,
// or to the node that has no shards, nil. Called with the node's lock.
func (n *node) slots(master *redis.Client) chan struct{} {
	for _, b := range n.breakers { // shards have many buckets
		if b != nil && b.master == master {
			return b.slots
		}
	}
	return make(chan struct{}, n.atOnce)
}

// tryEnter takes a slot if there is one.
func (b *breaker) tryEnter() bool {
	select {
	case b.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// enter waits for a slot, first come, first served, until done is closed or patience is over.
func (b *breaker) enter(done <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case b.slots <- struct{}{}:
		return true
	case <-done:
	case <-timer.C:
	}
	return false
}

func (b *breaker) exit() { <-b.slots }

// await waits for the turn of the round's request to node i, for half of the node timeout: the other half is
// for the answer. Trust still starts when the round began, so waiting only costs validity. If it returns false,
// the request must not be sent, and the node has its vote.
func (r *round) await(b *breaker, i int) bool {
	r.mu.Lock()
	r.queued = r.queued.with(i)
	r.mu.Unlock()
	entered := b.enter(r.done, r.l.p.nodeTimeout/2)
	r.mu.Lock()
	over := r.over
	if !over {
		r.queued = r.queued.without(i)
	}
	r.mu.Unlock()
	switch {
	case entered && !over:
		return true
	case entered:
		b.exit()
	default:
		r.hear(i, vote{verdict: CircuitOpen, err: errOverloaded})
	}
	return false
}
