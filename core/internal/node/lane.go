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
	// While a batch is under way the next one waits for it, but not for longer than this, at least.
	MinPace = 200 * time.Microsecond
	// After a batch of several so many wait a moment to be of several, too.
	companyLasts = 16
	// So long a goroutine that has led waits to lead again.
	idleTime = time.Second
	// Where half of the connections are taken, the next batch waits for this part of a node timeout.
	latePart = 4
	// A queue of so many is searched for requests that are not to be sent any more, once in a node timeout.
	manyQueued = 1024
)

// A lane is the way to what a node has of a bucket. Who asks while nothing is under way
// has a goroutine lead: it sends all that is asked by then as one batch, hands the answers out, and leads again if
// anything waits. So near a node one batch is under way, of all that came since the one before. One that is slow to be
// answered holds nobody up for long, and a lock over a network takes one round trip and not two (0.6 times the pairs per
// second 20 ms away). Renewals and ends of attempts go first: load must not cost a lease. The batches under way use as
// many connections as the client has; acquisitions alone no more than half of them.
//
// Nobody leads on the goroutine of its call: nothing interrupts a client of go-redis, and a call ends with its context.
type lane struct {
	*Bucket
	n *Node

	idle  chan *batch // to a goroutine that waits to lead
	waits atomic.Bool // there is one

	mu       sync.Mutex
	urgent   []request
	swept    clock.Instant // when urgent was last swept
	asking   []request     // acquisitions, which are all worth sending for as long, and so are stale in their order
	underWay int           // batches under way, or about to leave
	left     clock.Instant // when the last one left
	took     time.Duration // from there to the answer, lately
	company  int           // so many more wait a moment for it; none if it is not positive
	slots    *slots
	timer    *time.Timer
	wakes    clock.Instant // when the timer fires; 0 = it does not run
}

func newLane(b *Bucket, n *Node) *lane {
	l := &lane{Bucket: b, n: n, idle: make(chan *batch)}
	l.timer = time.AfterFunc(time.Hour, l.wake)
	l.timer.Stop()
	return l
}

// submit has requests sent, together.
func (l *lane) submit(requests ...request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range requests {
		l.slots = q.b.slots
		if q.r.op == wire.OpAcquire {
			l.asking = append(l.asking, q)
		} else {
			l.urgent = append(l.urgent, q)
		}
	}
	l.next()
}

// next has a goroutine lead if a batch may leave. Called with the lane's lock.
func (l *lane) next() {
	f := l.ready()
	if f == nil {
		return
	}
	select {
	case l.idle <- f:
	default:
		l.Tasks.Go(func() { l.lead(f) })
	}
}

// ready returns a batch if one may leave, else nil. Whoever asks has it leave then. Called with the lane's lock.
func (l *lane) ready() *batch {
	now := l.Clock.Now()
	if len(l.urgent)+len(l.asking) == 0 || l.underWay >= l.n.Connections {
		return nil
	}
	at := l.left.Add(l.pace())
	if at > now {
		l.wakeAt(at, now)
		return nil
	}
	var s *slots
	if len(l.urgent) == 0 {
		s = l.slots
		entered := s.enter(l)
		if !entered {
			return nil
		}
	}
	f := batchPool.Get().(*batch)
	f.l = l
	f.slots = s
	f.company = l.company > 0
	l.underWay++
	l.left = now
	return f
}

func (l *lane) wakeAt(at, now clock.Instant) {
	if l.wakes != 0 && l.wakes <= at {
		return
	}
	l.wakes = at
	l.timer.Reset(at.Since(now))
}

// lead runs a batch, then what came meanwhile, and then what comes before long: a goroutine that has done it once has a stack
// of the size that it takes. A new one for each batch would be 0.93 of the locks per second of a single caller.
func (l *lane) lead(f *batch) {
	timer := time.NewTimer(idleTime)
	defer timer.Stop()
	defer func() {
		if f != nil { // a hook of the client has ended the goroutine
			l.mu.Lock()
			defer l.mu.Unlock()
			l.next()
		}
	}()
	for f != nil {
		f.run()
		l.mu.Lock()
		f = l.ready()
		l.mu.Unlock()
		if f == nil {
			f = l.awaitBatch(timer)
		}
	}
}

func (l *lane) awaitBatch(timer *time.Timer) (f *batch) {
	first := l.waits.CompareAndSwap(false, true)
	if !first { // one that waits is enough
		return nil
	}
	timer.Reset(idleTime)
	select {
	case f = <-l.idle:
	case <-timer.C:
	case <-l.Closing.Done():
	}
	l.waits.Store(false)
	return f
}

// pace is how long the next batch waits for those under way, and it grows with the square of how many they are: over a
// network there are many, and none waits for long; a server that is busy gets fewer and larger ones, which are less to
// do. One that has gone silent is sent half of the connections' worth soon and the rest slowly: what goes there would
// wait there, too, but it may be connections that hang, and the server answers over others.
func (l *lane) pace() time.Duration {
	busy := l.underWay
	if len(l.Nodes) == 1 && l.took > 2*l.Conf.Pace {
		busy-- // two keep a server busy that is not next door, and need not share the client with others
	}
	switch {
	case busy <= 0:
		return 0
	case l.underWay > l.n.Connections/2:
		return l.Conf.Timeout / latePart
	}
	return l.Conf.Pace * time.Duration(max(1, busy*busy/4))
}

// wake is the timer's: it may be late, when nothing is left to do.
func (l *lane) wake() {
	stall.At(stall.Timer, stall.Anywhere, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakes = 0
	l.next()
}
