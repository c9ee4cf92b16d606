package node

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Background requests. A node begins its quarantine at the first request after it lost its memory. So a node that
// got no requests for a while is touched: however quiet the process is, its next lock need not wait for nodes that
// were restarted long ago. Servers that were unfit, or could not be examined, are examined again.
//
// A timer starts these requests. While none is due, they use no goroutine.

// RecheckEvery is the time after which a server that was unfit, or could not be examined, is examined again.
const RecheckEvery = 10 * time.Second

// TouchEvery returns how long nodes may go without a request. A node that restarts votes again after at most this
// time and the max TTL. Half a max TTL keeps that near the minimum; the bounds keep the requests few and the wait
// short. A Redis Cluster gets at most four touches per second for its many guard records.
func (g *Group) TouchEvery() time.Duration {
	every := min(max(g.Conf.MaxTTL/2, 5*time.Second), 30*time.Second)
	return max(every, time.Duration(len(g.Buckets))*250*time.Millisecond)
}

// StartMonitor starts the background requests, which go on until BeginClose. The guard records of a Cluster take
// turns, evenly spread over the period.
func (g *Group) StartMonitor() {
	now := g.Clock.Now()
	every := g.TouchEvery()
	for i, b := range g.Buckets {
		b.lastVoteRequest.Store(now.Add(every * time.Duration(i) / time.Duration(len(g.Buckets))))
	}

	g.mu.Lock()
	g.monitor = time.AfterFunc(time.Hour, func() { g.Tasks.Go(g.runDue) })
	g.mu.Unlock()
	g.schedule()

	// The buckets of a Cluster wait for their first turn.
	if g.touchesNodes() && len(g.Buckets) == 1 {
		g.Tasks.Go(g.Buckets[0].beginQuarantines)
	}
}

// schedule sets the timer to the next touch or examination, if any. It is called again when a new one may have
// become due.
func (g *Group) schedule() {
	_, next := g.nextTouch()

	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.Nodes {
		n.mu.Lock()
		next = min(next, n.checkAt)
		n.mu.Unlock()
	}

	if g.monitor != nil {
		g.monitor.Reset(max(next.Since(g.Clock.Now()), g.TouchEvery()/time.Duration(2*len(g.Buckets))))
	}
}

// touchesNodes reports whether nodes without requests are touched.
func (g *Group) touchesNodes() bool { return g.Conf.Guarded && !g.Conf.ReadOnly }

// nextTouch returns the bucket whose nodes have gone without a request for longest, and when they must be touched;
// nil and Never if nodes are not touched.
func (g *Group) nextTouch() (next *Bucket, due clock.Instant) {
	oldest := clock.Never
	if !g.touchesNodes() {
		return nil, oldest
	}

	for _, b := range g.Buckets {
		at := b.lastVoteRequest.Load()
		if at < oldest {
			next = b
			oldest = at
		}
	}
	return next, oldest.Add(g.TouchEvery())
}

// runDue starts the examinations that are due, and one touch: the guard records of a Cluster are touched one at a
// time.
func (g *Group) runDue() {
	now := g.Clock.Now()
	for _, n := range g.Nodes {
		due := n.takeCheck(now)
		if due {
			g.Tasks.Go(func() { g.check(n) })
		}
	}

	b, due := g.nextTouch()
	if due <= now {
		b.lastVoteRequest.Store(now)
		b.Touch(quorum.All(len(g.Nodes)))
	}
	g.schedule()
}

// takeCheck reports whether an examination of the node is due. The caller must then run it.
func (n *Node) takeCheck(now clock.Instant) (due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	due = n.checkAt <= now
	if due {
		n.checkAt = clock.Never
	}
	return due
}

// Touch sends a no-op: a node that lost its data starts its quarantine, and one that rejects writes is logged.
func (b *Bucket) Touch(nodes quorum.Set) {
	r := b.NewTouch()
	r.Send(context.Background(), nodes) //nolint:forbidigo // bounded by the node timeout

	// The replies are handled when they arrive.
	r.Abandon()
}

// NewTouch returns a round that asks nodes whether they would grant a key of the bucket.
func (b *Bucket) NewTouch() *Round {
	r := &Round{Request: b.Keys.Touch(b.index)}
	r.Init(b, wire.OpTouch, b.Conf.Timeout, nil, nil)
	return r
}
