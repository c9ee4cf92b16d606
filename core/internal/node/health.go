package node

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A health looks after nodes when nobody asks them. A node begins its quarantine when it is asked for the first
// time after it lost its memory, so one that has not been asked for a while is touched: however quiet the
// process is, the next lock need not wait for nodes that were restarted long ago. Servers that were unfit, or
// could not be examined, are examined again.
//
// It is a timer: while nothing is due it takes no goroutine.
type health struct {
	g     *Group
	asked []clock.AtomicInstant // by guard bucket: when nodes were last asked something that begins a quarantine

	mu    sync.Mutex  // of two nodes that are one server, only one is found to be the second
	timer *time.Timer // nil once stopped
}

// RecheckEvery is how long a server that was found unfit, or could not be examined, is left alone.
const RecheckEvery = 10 * time.Second

// TouchEvery is how long nodes may go without being asked. A node that restarts votes again after at most
// this and the max TTL: half a max TTL keeps that near the least there can be, within bounds that make the
// requests few and the wait short. A Redis Cluster is spared more than four per second for its many guard
// records.
func TouchEvery(maxTTL time.Duration, buckets int) time.Duration {
	every := min(max(maxTTL/2, 5*time.Second), 30*time.Second)
	return max(every, time.Duration(buckets)*250*time.Millisecond)
}

func (h *health) every() time.Duration { return TouchEvery(h.g.Conf.MaxTTL, len(h.asked)) }

// Start has the nodes looked after until stop. The guard records of a Cluster get their turns evenly.
func (h *health) Start() {
	now, every := h.g.Clock.Now(), h.every()
	for b := range h.asked {
		h.asked[b].Store(now.Add(every * time.Duration(b) / time.Duration(len(h.asked))))
	}
	h.mu.Lock()
	h.timer = time.AfterFunc(time.Hour, func() { h.g.Go(h.look) })
	h.mu.Unlock()
	h.plan()
	if h.touches() && len(h.asked) == 1 { // those of a Cluster are touched in turn
		h.g.Go(h.beginQuarantines)
	}
}

// plan sets the timer for what is due next. It is called again when something new may have become due.
func (h *health) plan() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil {
		return
	}
	next := clock.Never
	if h.touches() {
		_, next = h.idlest()
	}
	for _, n := range h.g.Nodes {
		n.mu.Lock()
		next = min(next, n.checkAt)
		n.mu.Unlock()
	}
	if next == clock.Never {
		h.timer.Stop()
		return
	}
	h.timer.Reset(max(next.Since(h.g.Clock.Now()), h.every()/time.Duration(2*len(h.asked))))
}

func (h *health) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// touches reports whether nodes are touched when nobody asks them.
func (h *health) touches() bool { return h.g.Conf.Guarded && !h.g.Conf.Looking }

// idlest is the bucket that nodes have not been asked about for longest, and when they are to be touched.
func (h *health) idlest() (bucket int, due clock.Instant) {
	oldest := clock.Never
	for b := range h.asked {
		if at := h.asked[b].Load(); at < oldest {
			bucket, oldest = b, at
		}
	}
	return bucket, oldest.Add(h.every())
}

// look does what is due. Of the guard records of a Cluster, it takes one at a time.
func (h *health) look() {
	e := h.g
	if e.IsClosing() {
		return
	}
	now := e.Clock.Now()
	var fit quorum.Set
	for _, n := range e.Nodes {
		n.mu.Lock()
		due := n.checkAt <= now
		if due {
			n.checkAt = clock.Never
		}
		if n.fault == nil {
			fit = fit.With(n.Index)
		}
		n.mu.Unlock()
		if due {
			e.Go(func() { h.check(n) })
		}
	}
	if bucket, due := h.idlest(); h.touches() && due <= now {
		h.asked[bucket].Store(now)
		h.Touch(fit, bucket)
	}
	h.plan()
}

// Touch asks nodes for nothing, so that those that lost their memory notice it, and those that take no writes are told of.
func (h *health) Touch(nodes quorum.Set, bucket int) {
	r := h.g.Touching(bucket)
	r.Send(context.Background(), nodes) //nolint:forbidigo // nobody waits for it; bounded by the node timeout
	r.Leave()                           // what they say is heard late
}

// Touching is a round that asks nodes whether they would grant a key of the bucket.
func (g *Group) Touching(bucket int) *Round {
	r := &Round{Request: g.Keys.Touch(bucket)}
	r.Init(g, wire.OpTouch, bucket, g.Conf.Timeout, nil, nil)
	return r
}
