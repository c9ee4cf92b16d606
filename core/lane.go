package core

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBatch keeps a batch at about a millisecond of the server's time, where each request counts for one, and for
	// one more per bulkOfOne bytes that it brings along.
	maxBatch  = 128
	bulkOfOne = 512
	// While a batch is under way the next one waits for so long, at least and at most, to have company.
	minPace, maxPace = 200 * time.Microsecond, 5 * time.Millisecond
	// So few requests take a server no time worth mentioning.
	fewRequests = 4
	// So often a request is sent again at once because its connection broke.
	maxLosses = 2
	// So long a goroutine waits for the next batch.
	idleTime = time.Second
	// The next batch to a silent server waits for these parts of a node timeout at most: where half of the
	// connections are free, and where they are not.
	soonPart, latePart = 16, 4
)

// A lane is the way to a node, or to what one guard bucket of a Redis Cluster holds. A request that comes alone
// leaves at once. What comes while others are under way leaves together, as one batch: soon, not when they have
// been answered, so that an answer which is slow to come holds nobody up for long. Renewals and ends of attempts
// go first: load must not cost a lease. The batches under way use as many connections as the client has;
// acquisitions alone no more than half of them.
type lane struct {
	e *ensemble
	n *node

	mu      sync.Mutex
	urgent  []request
	asking  []request // acquisitions
	flights int       // batches under way
	left    instant
	heard   instant       // when one was answered, or the first since then left
	timeout time.Duration // least node timeout of those that ask
	batches int           // that have left
	latency time.Duration // of the last answer
	floor   time.Duration // latency of a few requests that are under way alone
	slots   *slots
	inLine  *slots       // waits for one of these
	idle    chan *flight // to a goroutine that waits for one
	waits   atomic.Bool  // there is one
	timer   *time.Timer
	wakes   instant // when the timer fires; 0 = it does not run
}

// A request is what a round asks of one node.
type request struct {
	r *round
	b *breaker // that has admitted it

	losses int  // how often the connection broke that it was sent over
	parts  int  // into which a full batch would have to be cut, for it to travel with fewer than before
	again  bool // it was lost, and waits to be sent once more
}

// submit has requests sent, together.
func (l *lane) submit(requests ...request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range requests {
		l.slots = q.b.slots
		if timeout := q.r.p.nodeTimeout; l.timeout == 0 || timeout < l.timeout {
			l.timeout = timeout
		}
		switch {
		case q.r.script.word == nil: // it travels alone
			f := hangar.Get().(*flight)
			f.batch = append(f.batch, q)
			l.launch(f, nil, l.e.clock.now())
		case q.r.script == acquireScript:
			l.asking = append(l.asking, q)
		default:
			l.urgent = append(l.urgent, q)
		}
	}
	l.next()
}

// next has a batch leave if one may. Called with the lane's lock.
func (l *lane) next() {
	now := l.e.clock.now()
	for len(l.asking) > 0 && l.asking[0].r.stale(now) { // they would only take room
		l.asking[0].r.drop(l.n, l.asking[0].b)
		l.asking[0] = request{}
		l.asking = l.asking[1:]
	}
	if len(l.urgent)+len(l.asking) == 0 || l.flights >= l.n.connections {
		return
	}
	if at := l.left.add(max(l.pace(), l.backoff())); l.flights > 0 && !l.second() && at > now {
		l.wakeAt(at, at.since(now))
		return
	}
	var s *slots
	if len(l.urgent) == 0 {
		if s = l.slots; !s.enter(l) {
			return
		}
	}
	f := hangar.Get().(*flight)
	l.urgent = f.load(l.urgent)
	l.asking = f.load(l.asking)
	l.launch(f, s, now)
	l.left = now
}

// second reports whether the next batch is the second of two, which keep the server busy: it need not wait for
// company if it is full, or if nobody has to be asked but this node. Several nodes answer one after another.
func (l *lane) second() bool {
	return l.flights == 1 && (len(l.e.nodes) == 1 || len(l.urgent)+len(l.asking) >= maxBatch)
}

// launch sends a batch. Called with the lane's lock.
func (l *lane) launch(f *flight, s *slots, now instant) {
	f.l, f.slots = l, s
	l.batches++
	f.number, f.alone = l.batches, l.flights == 0 && len(f.batch) <= fewRequests
	if l.flights == 0 || l.heard > l.left { // until now no answer was due
		l.heard = now
	}
	l.flights++
	select {
	case l.idle <- f:
	default:
		l.e.tasks.Add(1)
		go l.fly(f)
	}
}

// pace is how long the next batch waits for company. Over a network the batches leave evenly over the time that an
// answer takes. What an answer takes beyond that is spent in the server, or waiting for it: then two at a time keep
// it busy, and the larger they are the less it has to do.
func (l *lane) pace() time.Duration {
	return max(min(max(l.floor/time.Duration(l.n.connections), (l.latency-l.floor)/2), maxPace), l.e.pace)
}

// backoff is how long the next batch waits because the server has been silent for longer than its last answer took:
// three times as long as it was when the last one left. What goes to a server that hangs would wait there, too, and
// take a connection each. But it may be connections that hang, and the server answers over others: so none waits for
// long.
func (l *lane) backoff() time.Duration {
	longest := l.timeout / soonPart
	if l.flights > l.n.connections/2 {
		longest = l.timeout / latePart
	}
	return min(3*(l.left.since(l.heard)-l.latency), longest)
}

func (l *lane) wakeAt(at instant, in time.Duration) {
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

// landed notes that a batch is not under way any more, and has the next one leave.
func (l *lane) landed(f *flight, sent, now instant, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights--
	if !answered {
		l.urgent = append(l.urgent, f.salvage(now)...)
	} else {
		latency := now.since(sent)
		l.latency, l.heard = latency, now
		switch {
		case !f.alone || f.number != l.batches: // another has left meanwhile
		case l.floor == 0:
			l.floor = latency
		default:
			l.floor = min(latency, l.floor+(latency-l.floor)/8)
		}
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
