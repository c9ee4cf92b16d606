package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"
)

const (
	// MaxBatch keeps a batch at about a millisecond of the server's time, where each request counts for one, and for
	// one more per bulkOfOne bytes that it brings along.
	MaxBatch  = 128
	bulkOfOne = 512
	// While a batch is under way the next one waits for so long, at least, to have company.
	MinPace = 200 * time.Microsecond
	// So often a request is sent again at once because its connection broke.
	maxLosses = 2
	// So long a goroutine waits for the next batch.
	idleTime = time.Second
	// Where half of the connections are taken, the next batch waits for this part of a node timeout.
	latePart = 4
)

// A lane is the way to a node, or to what one guard bucket of a Redis Cluster holds. A request that comes alone
// leaves at once. What comes while others are under way leaves together, as one batch: soon, not when they have
// been answered, so that an answer which is slow to come holds nobody up for long, and a lock over a network takes one
// round trip and not two (0.6 times the pairs per second 20 ms away). Renewals and ends of attempts
// go first: load must not cost a lease. The batches under way use as many connections as the client has;
// acquisitions alone no more than half of them.
type lane struct {
	g *Group
	n *Node

	mu       sync.Mutex
	urgent   []request
	asking   []request     // acquisitions
	underWay int           // batches under way
	left     clock.Instant // when the last one left
	timeout  time.Duration // least node timeout of those that ask
	slots    *slots
	inLine   *slots      // waits for one of these
	idle     chan *batch // to a goroutine that waits for one
	waits    atomic.Bool // there is one
	timer    *time.Timer
	wakes    clock.Instant // when the timer fires; 0 = it does not run
}

// A request is what a round asks of one node.
type request struct {
	r *Round
	b *breaker // that has admitted it

	losses int  // how often the connection broke that it was sent over
	weight int  // in a batch, at least: what was lost travels with fewer than before
	again  bool // it was lost, and waits to be sent once more
}

// submit has requests sent, together.
func (l *lane) submit(requests ...request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range requests {
		l.slots = q.b.slots
		if timeout := q.r.Timeout; l.timeout == 0 || timeout < l.timeout {
			l.timeout = timeout
		}
		switch {
		case q.r.op.Alone(): // it travels alone
			f := batchPool.Get().(*batch)
			f.requests = append(f.requests, q)
			l.launch(f, nil)
		case q.r.op == wire.OpAcquire:
			l.asking = append(l.asking, q)
		default:
			l.urgent = append(l.urgent, q)
		}
	}
	l.next()
}

// next has a batch leave if one may. Called with the lane's lock.
func (l *lane) next() {
	now := l.g.Clock.Now()
	for len(l.asking) > 0 && l.asking[0].r.stale(now) { // they would only take room
		l.asking[0].r.drop(l.n, l.asking[0].b)
		l.asking[0] = request{}
		l.asking = l.asking[1:]
	}
	if len(l.urgent)+len(l.asking) == 0 || l.underWay >= l.n.Connections {
		return
	}
	if at := l.left.Add(l.pace()); at > now {
		l.wakeAt(at, at.Since(now))
		return
	}
	var s *slots
	if len(l.urgent) == 0 {
		if s = l.slots; !s.enter(l) {
			return
		}
	}
	f := batchPool.Get().(*batch)
	l.urgent = f.load(l.urgent)
	l.asking = f.load(l.asking)
	l.launch(f, s)
	l.left = now
}

// launch sends a batch. Called with the lane's lock.
func (l *lane) launch(f *batch, s *slots) {
	f.l, f.slots = l, s
	l.underWay++
	select {
	case l.idle <- f:
	default:
		l.g.tasks.Add(1)
		go l.serve(f)
	}
}

// pace is how long the next batch waits for company, and it grows with the square of how many are under way: over a
// network there are many, and none waits for long; a server that is busy gets fewer and larger ones, which are less to
// do. One that has gone silent is sent half of the connections' worth soon and the rest slowly: what goes there would
// wait there, too, but it may be connections that hang, and the server answers over others.
func (l *lane) pace() time.Duration {
	busy := l.underWay
	if len(l.g.Nodes) == 1 {
		busy-- // two keep a server busy that need not share the client with others
	}
	switch {
	case busy <= 0:
		return 0
	case l.underWay > l.n.Connections/2:
		return l.timeout / latePart
	}
	return l.g.Pace * time.Duration(max(1, busy*busy/4))
}

func (l *lane) wakeAt(at clock.Instant, in time.Duration) {
	switch {
	case l.wakes != 0 && l.wakes <= at:
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(in, l.wake)
	default:
		l.timer.Reset(in)
	}
	l.wakes = at
}

// done notes that a batch is not under way any more, and has the next one leave.
func (l *lane) done(f *batch, now clock.Instant, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	if !answered {
		l.urgent = append(l.urgent, f.salvage(now)...)
	}
	l.next()
}

// wake is the timer's: it may be late, when nothing is left to do.
func (l *lane) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakes = 0
	l.next()
}
