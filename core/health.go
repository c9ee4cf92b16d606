package core

import (
	"context"
	_ "embed"
	"slices"
	"sync"
	"time"
)

// A health looks after nodes when nobody asks them. A node begins its quarantine when it is asked for the first
// time after it lost its memory, so one that has not been asked for a while is touched: however quiet the
// process is, the next lock need not wait for nodes that were restarted long ago. Servers that were unfit, or
// could not be examined, are examined again.
//
// It is a timer: while nothing is due it takes no goroutine.
type health struct {
	e *ensemble
	p *policy // of the Locker made by New

	mu    sync.Mutex
	timer *time.Timer // nil once stopped

	judging sync.Mutex
}

var (
	//go:embed lua/touch.lua
	touchLua string
	//go:embed lua/probe.lua
	probeLua string

	touchScript = newScript(OpTouch, touchReplies, intLua, resourceLua, requestLua, headCode.inline(), touchLua)
	probeScript = newScript(opProbe, probeReplies, probeLua)
)

// recheckEvery is how long a server that was found unfit, or could not be examined, is left alone.
const recheckEvery = 10 * time.Second

// touchEvery is how long a node may go without being asked. A node that restarts votes again after at most
// this and the max TTL: half a max TTL keeps that near the least there can be, within bounds that make the
// requests few and the wait short. A Redis Cluster is spared more than four per second for its many guard
// records.
func touchEvery(maxTTL time.Duration, buckets int) time.Duration {
	every := min(max(maxTTL/2, 5*time.Second), 30*time.Second)
	return max(every, time.Duration(buckets)*250*time.Millisecond)
}

// start has the nodes looked after until stop. The guard records of a Cluster get their turns evenly.
func (h *health) start() {
	e := h.e
	now, every, buckets := e.clock.now(), h.every(), len(e.guards)
	for _, n := range e.nodes {
		n.mu.Lock()
		for b := range n.askedAt {
			n.askedAt[b] = now.add(every * time.Duration(b) / time.Duration(buckets))
		}
		n.mu.Unlock()
	}
	h.mu.Lock()
	h.timer = time.AfterFunc(time.Hour, func() { e.spawn(h.look) })
	h.mu.Unlock()
	h.plan()
}

// plan sets the timer for what is due next. It is called again when something new may have become due.
func (h *health) plan() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer == nil {
		return
	}
	if d, due := h.next(); due {
		h.timer.Reset(d)
	} else {
		h.timer.Stop()
	}
}

func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// touches reports whether the node is touched when nobody asks it.
func (h *health) touches(n *node) bool { return h.p.guarded && !h.p.looking && n.fault == nil }

func (h *health) every() time.Duration { return touchEvery(h.p.maxTTL, len(h.e.guards)) }

// look does what is due. Of the guard records of a Cluster, it takes one at a time.
func (h *health) look() {
	e := h.e
	if e.isClosing() {
		return
	}
	now, every, bucket := e.clock.now(), h.every(), h.idlest()
	var idle nodeSet
	for _, n := range e.nodes {
		n.mu.Lock()
		check := n.dueCheck(now, false)
		if h.touches(n) && now.since(n.askedAt[bucket]) >= every {
			n.askedAt[bucket] = now
			idle = idle.with(n.index)
		}
		n.mu.Unlock()
		if check {
			e.spawn(func() { h.recheck(n) })
		}
	}
	if idle != 0 {
		h.touch(idle, bucket)
	}
	h.plan()
}

// idlest is the bucket that a node has not been asked about for longest.
func (h *health) idlest() (bucket int) {
	oldest := never
	for _, n := range h.e.nodes {
		n.mu.Lock()
		for b, at := range n.askedAt {
			if n.fault == nil && at < oldest {
				bucket, oldest = b, at
			}
		}
		n.mu.Unlock()
	}
	return bucket
}

// next is when something is due, if anything ever is.
func (h *health) next() (d time.Duration, due bool) {
	now, every := h.e.clock.now(), h.every()
	at := func(t instant) {
		if !due || t.since(now) < d {
			d, due = t.since(now), true
		}
	}
	for _, n := range h.e.nodes {
		n.mu.Lock()
		if h.touches(n) {
			at(slices.Min(n.askedAt).add(every))
		}
		if (!n.checked || n.fault != nil) && !n.checking {
			at(n.checkAt)
		}
		n.mu.Unlock()
	}
	return max(d, every/time.Duration(2*len(h.e.guards))), due
}

// touch asks nodes for nothing, so that those that lost their memory notice it, and those that take no writes are told of.
func (h *health) touch(nodes nodeSet, bucket int) {
	r := touching(h.e, h.p, bucket)
	r.decided = func(*round) bool { return false }
	r.send(context.Background(), nodes) //nolint:forbidigo // nobody waits for it; bounded by the node timeout
	r.leave()                           // what they say is heard late
}

// touching is a round that asks nodes whether they would grant a key of the bucket.
func touching(e *ensemble, p *policy, bucket int) *round {
	probe := e.keys.Probe(bucket)
	args := touchScript.args(7, probe, probe)
	if p.guarded {
		args = touchScript.args(7, probe, probe, e.guards[bucket])
	}
	return &round{e: e, p: p, bucket: bucket, script: touchScript, stamped: true, args: e.head(p, append(args, "-"))}
}

// dueCheck reports whether the server is to be examined now, and books that it is. One that answers for the
// first time is examined at once.
func (n *node) dueCheck(now instant, arrived bool) bool {
	if n.checking || n.checked && n.fault == nil || now < n.checkAt && !(arrived && n.away) {
		return false
	}
	n.checking = true
	return true
}

// doubt has a node that refused something examined at once, unless it is known to be unfit.
func (h *health) doubt(n *node) {
	n.mu.Lock()
	again := n.fault == nil && !n.checking
	n.checking = n.checking || again
	n.mu.Unlock()
	if again {
		h.e.spawn(func() { h.recheck(n) })
	}
}

// recheck examines a server that was away, or unfit, before.
func (h *health) recheck(n *node) {
	n.mu.Lock()
	was := n.fault
	n.mu.Unlock()
	f := h.examine(n)
	fault := h.judge(n, f)
	h.plan()
	switch {
	case f.err != nil:
	case fault == nil && was != nil:
		h.p.logger.Info("lockkit: node is fit and takes part again", n.attrs())
	case fault != nil && was == nil:
		h.tellUnfit(n, fault)
	}
}
