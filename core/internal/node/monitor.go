package node

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// How nodes are looked after when nobody asks them. A node begins its quarantine when it is asked for the first
// time after it lost its memory, so one that has not been asked for a while is touched: however quiet the
// process is, the next lock need not wait for nodes that were restarted long ago. Servers that were unfit, or
// could not be examined, are examined again.
//
// It is a timer: while nothing is due it takes no goroutine.

// RecheckEvery is how long a server that was found unfit, or could not be examined, is left alone.
const RecheckEvery = 10 * time.Second

// TouchEvery is how long nodes may go without being asked. A node that restarts votes again after at most
// this and the max TTL: half a max TTL keeps that near the least there can be, within bounds that make the
// requests few and the wait short. A Redis Cluster is spared more than four per second for its many guard
// records.
func (g *Group) TouchEvery() time.Duration {
	every := min(max(g.Conf.MaxTTL/2, 5*time.Second), 30*time.Second)
	return max(every, time.Duration(len(g.Buckets))*250*time.Millisecond)
}

// LookAfter has the nodes looked after until BeginClose. The guard records of a Cluster get their turns evenly.
func (g *Group) LookAfter() {
	now := g.Clock.Now()
	every := g.TouchEvery()
	for i, b := range g.Buckets {
		b.asked.Store(now.Add(every * time.Duration(i) / time.Duration(len(g.Buckets))))
	}
	g.mu.Lock()
	g.due = time.AfterFunc(time.Hour, func() { g.Tasks.Go(g.look) })
	g.mu.Unlock()
	g.plan()
	if g.touches() && len(g.Buckets) == 1 { // those of a Cluster are touched in turn
		g.Tasks.Go(g.Buckets[0].beginQuarantines)
	}
}

// plan sets the timer for what is due next, which may be never. It is called again when something new may have become due.
func (g *Group) plan() {
	_, next := g.idlest()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.Nodes {
		n.mu.Lock()
		next = min(next, n.checkAt)
		n.mu.Unlock()
	}
	if g.due != nil {
		g.due.Reset(max(next.Since(g.Clock.Now()), g.TouchEvery()/time.Duration(2*len(g.Buckets))))
	}
}

// touches reports whether nodes are touched when nobody asks them.
func (g *Group) touches() bool { return g.Conf.Guarded && !g.Conf.Looking }

// idlest is the bucket that nodes have not been asked about for longest, and when they are to be touched.
func (g *Group) idlest() (next *Bucket, due clock.Instant) {
	oldest := clock.Never
	if !g.touches() {
		return nil, oldest
	}
	for _, b := range g.Buckets {
		at := b.asked.Load()
		if at < oldest {
			next = b
			oldest = at
		}
	}
	return next, oldest.Add(g.TouchEvery())
}

// look does what is due. Of the guard records of a Cluster, it takes one at a time.
func (g *Group) look() {
	now := g.Clock.Now()
	for _, n := range g.Nodes {
		due := n.takeCheck(now)
		if due {
			g.Tasks.Go(func() { g.check(n) })
		}
	}
	b, due := g.idlest()
	if due <= now {
		b.asked.Store(now)
		b.Touch(quorum.All(len(g.Nodes)))
	}
	g.plan()
}

func (n *Node) takeCheck(now clock.Instant) (due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	due = n.checkAt <= now
	if due {
		n.checkAt = clock.Never
	}
	return due
}

// Touch asks nodes for nothing, so that those that lost their memory notice it, and those that take no writes are told of.
func (b *Bucket) Touch(nodes quorum.Set) {
	r := b.Touching()
	r.Send(context.Background(), nodes) //nolint:forbidigo // nobody waits for it; bounded by the node timeout
	r.Leave()                           // what they say is heard late
}

// Touching is a round that asks nodes whether they would grant a key of the bucket.
func (b *Bucket) Touching() *Round {
	r := &Round{Request: b.Keys.Touch(b.index)}
	r.Init(b, wire.OpTouch, b.Conf.Timeout, nil, nil)
	return r
}
