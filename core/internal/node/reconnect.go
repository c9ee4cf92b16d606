package node

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A name may lead to another server than before, such as the new primary after a failover, while the old primary
// lives on as its replica. A client resolves a name, or asks its Sentinels, only when it connects, and go-redis
// keeps connections that work. So if a server answers that it is the wrong one, no matter how, its connections are
// closed, and the next request makes a new one.

// reconnectEvery is the shortest time between two closings of a node's connections.
const reconnectEvery = 250 * time.Millisecond

// whereabouts is the part of a Node that records whether its server is found under its name. The node's mutex
// guards it.
type whereabouts struct {
	misplaced   bool          // the server that answers is not the node's
	reconnectAt clock.Instant // when the node's connections may be closed again

	returned     context.Context // ends when the node is found again
	markReturned context.CancelFunc
}

// awaitReturn renews the context that ends when the node is found again.
func (w *whereabouts) awaitReturn(parent context.Context) {
	returned, markReturned := context.WithCancel(parent)
	w.returned = returned
	w.markReturned = markReturned
}

// Returned returns a context that ends when the node is found again after a wrong server has answered in its place.
// Connections that were made before may lead to the wrong server.
func (n *Node) Returned() context.Context {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.returned
}

// track closes the connections of a node if a wrong server has voted in its place, and records when the node is found
// again.
func (b *Bucket) track(n *Node, v *quorum.Vote) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case isFromWrongServer(v):
		n.misplaced = true
		b.reconnectSoon(n)
	case n.misplaced && v.Err == nil:
		n.misplaced = false
		n.markReturned()
		n.awaitReturn(b.Closing)
	}
}

func isFromWrongServer(v *quorum.Vote) bool {
	if v.Verdict == wire.Replica {
		return true
	}
	return v.Err != nil && goredis.TroubleOf(v.Err).MayHaveMoved
}

// reconnectSoon makes the next requests look for the node's server again. n.mu must be held.
func (b *Bucket) reconnectSoon(n *Node) {
	now := b.Clock.Now()
	n.reloadTopology(now)
	if now < n.reconnectAt {
		return
	}
	n.reconnectAt = now.Add(reconnectEvery)
	b.Tasks.Go(func() { b.reconnect(n) })
}

// reconnect closes the idle connections of a node.
func (b *Bucket) reconnect(n *Node) {
	ctx := b.timeoutContext()

	client := n.Client
	if n.Cluster != nil {
		master, err := n.Cluster.MasterFor(ctx, b.tagName)
		if err != nil {
			return
		}
		client = redis.UniversalClient(master)
	}

	goredis.Disconnect(ctx, client)
}
