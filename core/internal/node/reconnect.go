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

// A name may lead to another server than before: to the new primary after a failover, while the old one lives on as its
// replica. A client looks a name up, or asks its Sentinels, only when it connects, and go-redis keeps connections for as long
// as they work. So a server that answers that it is not the one to ask gets its connections closed, whatever it answers that
// by, and the next request makes a new one.

// seekEvery is how often at most the connections of a node are closed for that.
const seekEvery = 250 * time.Millisecond

// whereabouts are what is known of where a node is.
type whereabouts struct {
	astray bool          // what answers in its place is not the one to ask
	seekAt clock.Instant // when its connections may be closed again

	found context.Context // ends when it is found where it was not before
	left  context.CancelFunc
}

func (w *whereabouts) awaitReturn(parent context.Context) {
	found, left := context.WithCancel(parent)
	w.found = found
	w.left = left
}

// Found returns a context that ends when the node, after its server answered that it was not the one to ask, has been found:
// what was connected to it before may lead elsewhere.
func (n *Node) Found() context.Context {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.found
}

// track follows where a node is, by what it answered to a request about the bucket.
func (b *Bucket) track(n *Node, v *quorum.Vote) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case isElsewhere(v):
		n.astray = true
		b.seek(n)
	case n.astray && v.Err == nil:
		n.astray = false
		n.left()
		n.awaitReturn(b.Closing)
	}
}

func isElsewhere(v *quorum.Vote) bool {
	if v.Verdict == wire.Replica {
		return true
	}
	return v.Err != nil && goredis.TroubleOf(v.Err).Elsewhere
}

// seek closes the connections of a node, so that the next request looks for its server anew. Called with the node's lock.
func (b *Bucket) seek(n *Node) {
	now := b.Clock.Now()
	n.follow(now)
	if now < n.seekAt {
		return
	}
	n.seekAt = now.Add(seekEvery)
	b.Tasks.Go(func() { b.reconnect(n) })
}

// reconnect closes the connections of a node that nobody uses.
func (b *Bucket) reconnect(n *Node) {
	ctx := b.timeoutContext()
	client := n.Client
	if n.Cluster != nil {
		master, err := n.Cluster.MasterFor(ctx, b.tagged)
		if err != nil {
			return
		}
		client = redis.UniversalClient(master)
	}
	goredis.Disconnect(ctx, client)
}
