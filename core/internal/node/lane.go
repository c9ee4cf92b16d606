package node

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/stall"
)

const (
	// MaxBatch keeps a batch at about a millisecond of the server's time, where each request counts for one, and for
	// one more per bulkOfOne bytes that it brings along.
	MaxBatch  = 128
	bulkOfOne = 512
	// While a batch is under way the next one waits for it, but not for longer than this, at least.
	MinPace = 200 * time.Microsecond
	// After a batch of several so many wait a moment to be of several, too.
	companyLasts = 16
	// So often a request is sent again at once because its connection broke.
	maxLosses = 2
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

	mu       sync.Mutex
	urgent   []request
	swept    clock.Instant // when urgent was last swept
	asking   []request     // acquisitions, which are all worth sending for as long, and so are stale in their order
	underWay int           // batches under way, or about to leave
	left     clock.Instant // when the last one left
	took     time.Duration // from there to the answer, lately
	company  int           // so many more wait a moment for it; none if it is not positive
	slots    *slots
	idle     chan *batch // to a goroutine that waits to lead
	waits    atomic.Bool // there is one
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
		if l.slots = q.b.slots; q.r.op == wire.OpAcquire {
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
	if at := l.left.Add(l.pace()); at > now {
		if l.wakes == 0 || at < l.wakes {
			l.wakes = at
			l.timer.Reset(at.Since(now))
		}
		return nil
	}
	var s *slots
	if len(l.urgent) == 0 {
		if s = l.slots; !s.enter(l) {
			return nil
		}
	}
	f := batchPool.Get().(*batch)
	f.l, f.slots, f.company = l, s, l.company > 0
	l.underWay++
	l.left = now
	return f
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
		if f != nil || !l.waits.CompareAndSwap(false, true) { // one that waits is enough
			continue
		}
		timer.Reset(idleTime)
		select {
		case f = <-l.idle:
		case <-timer.C:
		case <-l.Closing.Done():
		}
		l.waits.Store(false)
	}
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

// A batch is requests that travel to a node together.
type batch struct {
	l        *lane
	slots    *slots // one is taken; nil = it needs none
	company  bool   // it waits a moment for that
	requests []request
	size     int  // requests that were loaded to be sent
	weight   int  // of these
	most     int  // bound of size; 0 = MaxBatch
	full     bool // a request did not fit, so that later ones must not overtake it
	votes    []quorum.Vote
	err      error // nothing was answered, or not one reply to each request
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// load takes requests from the front of a queue until the batch is full, and returns the rest of the queue. A stale request
// comes along without being counted: filter drops it.
func (f *batch) load(queue []request, now clock.Instant) []request {
	n := 0
	for ; n < len(queue) && !f.full; n++ {
		if queue[n].r.stale(now) {
			continue
		}
		f.full = !f.fits(queue[n])
		if f.full {
			break
		}

		f.size++
		f.weight += queue[n].weight()
		f.most = f.mostWith(queue[n])
	}
	f.requests = append(f.requests, queue[:n]...)
	left := copy(queue, queue[n:])
	clear(queue[left:])
	return queue[:left]
}

// sweep takes all stale requests out of a queue, and returns the rest. They come along without being counted, as in load.
func (f *batch) sweep(queue []request, now clock.Instant) []request {
	kept := queue[:0]
	for _, q := range queue {
		if q.r.stale(now) {
			f.requests = append(f.requests, q)
		} else {
			kept = append(kept, q)
		}
	}
	clear(queue[len(kept):])
	return kept
}

// fits reports whether the batch has room for q. An empty batch has room for any request.
func (f *batch) fits(q request) bool {
	if f.size == 0 {
		return true
	}
	return f.size < f.mostWith(q) && f.weight+q.weight() <= MaxBatch
}

// mostWith returns how many requests the batch may have if q is one of them.
func (f *batch) mostWith(q request) int {
	return min(cmp.Or(f.most, MaxBatch), cmp.Or(q.most, MaxBatch))
}

// run sends what waits, and hands out the answers. Those that were answered together are about to ask again, and get the time
// to: without it, four callers have 0.7 of the locks per second.
func (f *batch) run() {
	l := f.l
	stall.At(stall.Leave, l.n.Index, l.Group)
	if f.company {
		runtime.Gosched()
	}
	l.mu.Lock()
	loaded := l.Clock.Now()
	if len(l.urgent) >= manyQueued && loaded.Since(l.swept) >= l.Conf.Timeout { // those worth less time may wait behind others
		l.urgent, l.swept = f.sweep(l.urgent, loaded), loaded
	}
	l.urgent = f.load(l.urgent, loaded)
	if len(f.requests) > 0 || f.slots != nil { // what was urgent may have left meanwhile
		l.asking = f.load(l.asking, loaded)
	}
	l.company = max(l.company-1, min(len(f.requests)-1, 1)*companyLasts)
	l.mu.Unlock()
	sent, wall := l.Clock.Now(), time.Now()
	f.filter(sent)
	stall.At(stall.Call, l.n.Index, l.Group)
	defer f.finish(sent) // also if a hook of the client ends the goroutine
	f.call(sent, wall)
}

// errNoReturn is the error of a batch whose hook has ended the goroutine.
var errNoReturn = errors.New("a hook of the client has ended its goroutine (runtime.Goexit)")

// finish hands out the answers to a batch that was sent.
func (f *batch) finish(sent clock.Instant) {
	l := f.l
	if len(f.votes) < len(f.requests) {
		f.err = errNoReturn
		f.votes = slices.Repeat([]quorum.Vote{failed(errNoReturn)}, len(f.requests))
	}
	now, clock := l.Clock.Now(), time.Now()
	answered := len(f.votes) > 0 && goredis.Answered(f.votes[0].Err) // all are, or none
	l.mu.Lock()
	l.took += (now.Since(sent) - l.took) / 4
	if l.underWay--; answered {
		l.answered.Store(now)
	} else {
		l.urgent = append(l.urgent, f.salvage(now)...)
	}
	l.mu.Unlock()
	if f.slots != nil {
		f.slots.exit()
	}
	stall.At(stall.Deliver, l.n.Index, l.Group)
	f.deliver(sent, now, clock)
	stall.At(stall.After, l.n.Index, l.Group)

	clear(f.requests)
	clear(f.votes)
	*f = batch{requests: f.requests[:0], votes: f.votes[:0]}
	batchPool.Put(f)
}

// salvage returns the requests of a batch whose connection broke that are to be sent again, over other connections and
// in batches of at most half the size: a network that breaks connections must not cost the leases that happened to travel together. Scripts
// are idempotent per attempt, and trust counts from when the round began, whichever request is answered. What was sent
// before may arrive yet, so the attempt has one request more unanswered.
func (f *batch) salvage(now clock.Instant) (lost []request) {
	if len(f.votes) == 0 || !goredis.Broken(f.votes[0].Err) {
		return nil
	}
	for i := range f.requests {
		q := &f.requests[i]
		r := q.r
		if r.op.Alone() || r.op == wire.OpAcquire || q.losses == maxLosses || now.Since(r.Sent) >= r.Timeout {
			continue
		}
		f.l.n.count(q.b, 1)
		q.again = true
		lost = append(lost, request{r: r, b: q.b, losses: q.losses + 1, most: max(1, len(f.requests)/2)})
	}
	return lost
}

// filter leaves out what is not to be sent any more. The wall clock has been read: what is sent after the end of
// its attempt looks older to the node than the tombstone.
func (f *batch) filter(now clock.Instant) {
	n, kept := f.l.n, f.requests[:0]
	for _, q := range f.requests {
		if !q.r.departs(n.Index, now) {
			q.r.drop(n, q.b, now)
			continue
		}
		kept = append(kept, q)
	}
	clear(f.requests[len(kept):])
	f.requests = kept
}

// call sends the requests.
func (f *batch) call(sent clock.Instant, wall time.Time) {
	l, n := f.l, f.l.n
	if len(f.requests) == 0 {
		return
	}
	first := f.requests[0].r
	ctx := &first.nodeContext
	if len(f.requests) > 1 || sent.Since(first.Sent) > first.Timeout/4 { // it has waited for its turn
		ctx = &nodeContext{Context: context.Background(), of: l.deadlines} //nolint:forbidigo // it belongs to no caller
		if len(f.requests) == 1 {
			ctx.Context = first.Context
		}
		for _, q := range f.requests {
			if deadline := wall.Add(q.r.Timeout); deadline.After(ctx.deadline) {
				ctx.deadline = deadline
			}
		}
	}
	request := func(i int) wire.Request { return f.requests[i].r.to(n.Index) }
	call := l.Head.Load().Encode(len(f.requests), request, l.Memory(n.Index), wall)
	reply, err := run(ctx, n.Client, call)
	var answers wire.Answers
	if err == nil {
		answers, err = call.Answers(reply)
	}
	f.err = err
	for i := range f.requests {
		if err != nil {
			f.votes = append(f.votes, failed(err))
		} else if reply, err := answers.Next(request(i)); err != nil {
			f.votes = append(f.votes, failed(err))
		} else {
			f.votes = append(f.votes, quorum.Vote{Reply: reply})
		}
	}
}

// deliver gives the answers to those who wait for them.
func (f *batch) deliver(sent, now clock.Instant, clock time.Time) {
	n := f.l.n
	var longest time.Duration // the max TTL that a node was the first to tell of
	for i, q := range f.requests {
		v := &f.votes[i]
		if f.err != nil && i > 0 && q.b == f.requests[i-1].b || q.losses > 0 && !goredis.Answered(v.Err) {
			n.count(q.b, -1) // they failed as one, or with the batch that they were in before
		} else {
			n.leave(q.b, now, v.Err)
		}
		if q.again {
			continue
		}
		v.Waited, v.Latency = sent.Since(q.r.Sent), now.Since(sent)
		if f.read(v, q.r, clock) {
			longest = v.Longest
		}
		q.r.hear(n.Index, *v)
	}
	if longest > 0 {
		f.l.tellLongest(longest, n)
	}
	observed := false
	for i, q := range f.requests {
		if q.again {
			continue
		}
		if f.err == nil || !observed {
			f.l.observeVote(n, f.votes[i], q.r)
		}
		observed = true
		q.r.tellReply(n, &f.votes[i])
	}
}

// read notes what a vote says of its node, and refuses a grant that cannot be. It reports whether the vote is the
// first to tell of a longer max TTL.
func (f *batch) read(v *quorum.Vote, r *Round, clock time.Time) (first bool) {
	n := f.l.n
	if v.Clock != 0 {
		v.Skew = v.Clock.Skew(clock)
		n.HeardClock(v.Skew, v.Latency)
		if v.Verdict == wire.ClockSkewed && v.Skew.Abs() <= f.l.Conf.Window { // the clocks agree
			v.Verdict = wire.TooLate
		}
	}
	f.l.heardMemory(n.Index, v.Memory)
	if known := f.l.Memory(n.Index); v.Memory == known {
		v.Memory = known // a lease keeps it, and would keep all of the reply
	}
	first = v.Longest > 0 && f.l.Learn(v.Longest)
	if r.op == wire.OpAcquire && v.Verdict == wire.Granted && v.Clock.Lead(v.Token) > wire.Slack {
		v.Verdict, v.Err = wire.Failed, errAhead
	}
	return first
}

// errAhead is what a granted token means that is more than a day ahead of the node's clock, which no counter comes to by
// itself. Taken for good, it would leave the key without tokens.
var errAhead = errors.New("its fencing counter of this key is more than a day ahead of its clock: delete this node's data of the key when no process holds it")

// failed is the vote of a node that answers with an error, or not at all.
func failed(err error) quorum.Vote {
	if goredis.Says(err, "READONLY") {
		return quorum.Said(wire.Replica, err)
	}
	return quorum.Said(wire.Failed, err)
}
