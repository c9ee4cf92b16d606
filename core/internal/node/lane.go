package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/stall"
)

const (
	// MinPace is the shortest time for which a batch waits for an earlier, unanswered one.
	MinPace = 200 * time.Microsecond
	// peerBatches is the number of batches, after one of several requests, that wait a moment for more requests.
	peerBatches = 16
	// idleTime is how long a goroutine that has sent a batch waits for another one.
	idleTime = time.Second
	// slowPart divides the node timeout. The quotient is the pace of batches while more than half of the
	// connections are in use.
	slowPart = 4
	// sweepLength is the length from which the urgent queue is searched for stale requests, once per node timeout.
	sweepLength = 1024
)

// A lane carries the requests about one bucket to one node. If nothing is in flight, a request leaves at once with
// all that are queued by then, as one batch. Its goroutine delivers the replies, and sends the next batch.
//
// Near a node, one batch is in flight at a time, with the requests that came since the one before. A batch that is
// slow to be answered delays the next one only by the pace, so a lock over a network takes one round trip and not two
// (with two, 0.6 times the pairs per second 20 ms away).
//
// Renewals and ends of attempts go first: load must not cost a lease. The batches in flight use as many connections
// as the client has; acquisitions alone use at most half of them.
//
// A call never sends a batch on its own goroutine: go-redis cannot be interrupted, and a call must end with its
// context.
type lane struct {
	*Bucket
	node *Node

	handoff chan *batch // to an idle goroutine
	hasIdle atomic.Bool // a goroutine waits on handoff

	// mu guards the fields below. If it is locked together with the mutex of a slotPool, mu is locked first.
	mu           sync.Mutex
	urgent       []request
	sweptAt      clock.Instant // when stale requests were last removed from urgent
	acquires     []request     // all are worth sending for the same time, so they become stale in their order
	inFlight     int           // batches that were sent, or are about to be
	lastSent     clock.Instant // when the last batch was sent
	latency      time.Duration // of the recent batches, as a moving average
	waitForPeers int           // the number of batches that still wait a moment for more requests
	slots        *slotPool
	timer        *time.Timer
	wakeTime     clock.Instant // of the next planned wake-up; 0 if there is none
}

func newLane(b *Bucket, n *Node) *lane {
	l := &lane{Bucket: b, node: n, handoff: make(chan *batch)}
	l.timer = time.AfterFunc(time.Hour, l.wake)
	l.timer.Stop()
	return l
}

// submit queues requests together, and starts a batch if one may be sent.
func (l *lane) submit(requests ...request) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, q := range requests {
		l.slots = q.breaker.slots
		if q.round.op == wire.OpAcquire {
			l.acquires = append(l.acquires, q)
		} else {
			l.urgent = append(l.urgent, q)
		}
	}

	l.startNext()
}

// startNext sends the next batch on an idle goroutine or a new one, if a batch may be sent. l.mu must be held.
func (l *lane) startNext() {
	b := l.nextBatch()
	if b == nil {
		return
	}

	select {
	case l.handoff <- b:
	default:
		l.Tasks.Go(func() { l.sendLoop(b) })
	}
}

// nextBatch returns the next batch, or nil if none may be sent yet. The caller must send it. l.mu must be held.
func (l *lane) nextBatch() *batch {
	now := l.Clock.Now()
	if len(l.urgent)+len(l.acquires) == 0 || l.inFlight >= l.node.Connections {
		return nil
	}

	at := l.lastSent.Add(l.pace())
	if at > now {
		l.wakeAt(at, now)
		return nil
	}

	// A batch with urgent requests needs no slot, even if it also carries acquisitions.
	var slots *slotPool
	if len(l.urgent) == 0 {
		slots = l.slots
		ok := slots.take(l)
		if !ok {
			return nil
		}
	}

	b := batchPool.Get().(*batch)
	b.lane = l
	b.slots = slots
	b.yields = l.waitForPeers > 0
	l.inFlight++
	l.lastSent = now
	return b
}

// wakeAt sets the timer, unless it fires earlier anyway. l.mu must be held.
func (l *lane) wakeAt(at, now clock.Instant) {
	if l.wakeTime != 0 && l.wakeTime <= at {
		return
	}
	l.wakeTime = at
	l.timer.Reset(at.Since(now))
}

// sendLoop sends b and every batch that becomes ready, then idles for idleTime so that it can be reused: its stack
// has already grown. With a new goroutine for each batch, a single caller has 0.93 of the locks per second.
func (l *lane) sendLoop(b *batch) {
	timer := time.NewTimer(idleTime)
	defer timer.Stop()
	defer func() {
		// A hook of the client has ended the goroutine: the next batch needs another one.
		if b != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.startNext()
		}
	}()

	for b != nil {
		b.send()

		l.mu.Lock()
		b = l.nextBatch()
		l.mu.Unlock()
		if b == nil {
			b = l.awaitBatch(timer)
		}
	}
}

// awaitBatch returns a batch that startNext hands over, or nil if none comes within idleTime. It also returns nil if
// another goroutine is already waiting: one is enough.
func (l *lane) awaitBatch(timer *time.Timer) (b *batch) {
	first := l.hasIdle.CompareAndSwap(false, true)
	if !first {
		return nil
	}

	timer.Reset(idleTime)
	select {
	case b = <-l.handoff:
	case <-timer.C:
	case <-l.Closing.Done():
	}
	l.hasIdle.Store(false)
	return b
}

// pace returns how long after the last batch the next one may be sent. It grows with the square of the number of
// batches in flight. Over a network many are in flight, and no batch waits for long. A busy server gets fewer and
// larger batches, which cost it less.
//
// A silent server is sent batches on half of its connections soon, and on the rest slowly. These batches would wait
// at the server, too, but it may be that only connections hang, and that the server answers over others.
//
// l.mu must be held.
func (l *lane) pace() time.Duration {
	busy := l.inFlight

	// Two batches keep a single node busy that is not next door. With several nodes, their batches share the client.
	if len(l.Nodes) == 1 && l.latency > 2*l.Conf.Pace {
		busy--
	}

	switch {
	case busy <= 0:
		return 0
	case l.inFlight > l.node.Connections/2:
		return l.Conf.Timeout / slowPart
	}
	return l.Conf.Pace * time.Duration(max(1, busy*busy/4))
}

// wake starts the next batch, if one may be sent. The timer and the slotPool call it, possibly late.
func (l *lane) wake() {
	stall.At(stall.Timer, stall.Anywhere, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeTime = 0
	l.startNext()
}
