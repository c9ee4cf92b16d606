package node

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
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
	// So often a request is sent again at once because its connection broke.
	maxLosses = 2
)

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
	f.take(l.Clock.Now())
	l.mu.Unlock()
	sent := l.Clock.Now()
	wall := time.Now()
	f.filter(sent)
	stall.At(stall.Call, l.n.Index, l.Group)
	defer f.finish(sent) // also if a hook of the client ends the goroutine
	f.call(sent, wall)
}

func (f *batch) take(now clock.Instant) {
	l := f.l
	many := len(l.urgent) >= manyQueued
	if many && now.Since(l.swept) >= l.Conf.Timeout { // those worth less time may wait behind others
		l.urgent = f.sweep(l.urgent, now)
		l.swept = now
	}
	l.urgent = f.load(l.urgent, now)
	if len(f.requests) > 0 || f.slots != nil { // what was urgent may have left meanwhile
		l.asking = f.load(l.asking, now)
	}
	l.company = max(l.company-1, min(len(f.requests)-1, 1)*companyLasts)
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
	now := l.Clock.Now()
	clock := time.Now()
	answered := len(f.votes) > 0 && goredis.Answered(f.votes[0].Err) // all are, or none
	l.mu.Lock()
	l.took += (now.Since(sent) - l.took) / 4
	l.underWay--
	if answered {
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
		if !q.goesAgain(now) {
			continue
		}
		f.l.n.count(q.b, 1)
		q.again = true
		lost = append(lost, request{r: q.r, b: q.b, losses: q.losses + 1, most: max(1, len(f.requests)/2)})
	}
	return lost
}

// filter leaves out what is not to be sent any more. The wall clock has been read: what is sent after the end of
// its attempt looks older to the node than the tombstone.
func (f *batch) filter(now clock.Instant) {
	n := f.l.n
	kept := f.requests[:0]
	for _, q := range f.requests {
		departs := q.r.departs(n.Index, now)
		if departs {
			kept = append(kept, q)
		} else {
			q.r.drop(n, q.b, now)
		}
	}
	clear(f.requests[len(kept):])
	f.requests = kept
}

// call sends the requests.
func (f *batch) call(sent clock.Instant, wall time.Time) {
	if len(f.requests) == 0 {
		return
	}
	l := f.l
	n := l.n
	ctx := f.context(sent, wall)
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
			continue
		}
		reply, err := answers.Next(request(i))
		if err != nil {
			f.votes = append(f.votes, failed(err))
			continue
		}
		f.votes = append(f.votes, quorum.Vote{Reply: reply})
	}
}

func (f *batch) context(sent clock.Instant, wall time.Time) *nodeContext {
	first := f.requests[0].r
	alone := len(f.requests) == 1
	if alone && sent.Since(first.Sent) <= first.Timeout/4 { // it has not waited for its turn
		return &first.nodeContext
	}
	ctx := &nodeContext{Context: context.Background(), of: f.l.deadlines} //nolint:forbidigo // it belongs to no caller
	if alone {
		ctx.Context = first.Context
	}
	for _, q := range f.requests {
		deadline := wall.Add(q.r.Timeout)
		if deadline.After(ctx.deadline) {
			ctx.deadline = deadline
		}
	}
	return ctx
}

// deliver gives the answers to those who wait for them.
func (f *batch) deliver(sent, now clock.Instant, clock time.Time) {
	n := f.l.n
	var longest time.Duration // the max TTL that a node was the first to tell of
	for i, q := range f.requests {
		v := &f.votes[i]
		if f.isCounted(i) {
			n.count(q.b, -1) // they failed as one, or with the batch that they were in before
		} else {
			n.leave(q.b, now, v.Err)
		}
		if q.again {
			continue
		}
		v.Waited = sent.Since(q.r.Sent)
		v.Latency = now.Since(sent)
		first := f.read(v, q.r, clock)
		if first {
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

func (f *batch) isCounted(i int) bool {
	q := f.requests[i]
	if f.err != nil && i > 0 && q.b == f.requests[i-1].b {
		return true
	}
	return q.losses > 0 && !goredis.Answered(f.votes[i].Err)
}

// read notes what a vote says of its node, and refuses a grant that cannot be. It reports whether the vote is the
// first to tell of a longer max TTL.
func (f *batch) read(v *quorum.Vote, r *Round, clock time.Time) (first bool) {
	l := f.l
	n := l.n
	if v.Clock != 0 {
		v.Skew = v.Clock.Skew(clock)
		n.HeardClock(v.Skew, v.Latency)
		if v.Verdict == wire.ClockSkewed && v.Skew.Abs() <= l.Conf.Window { // the clocks agree
			v.Verdict = wire.TooLate
		}
	}
	l.heardMemory(n.Index, v.Memory)
	known := l.Memory(n.Index)
	if v.Memory == known {
		v.Memory = known // a lease keeps it, and would keep all of the reply
	}
	first = v.Longest > 0 && l.Learn(v.Longest)
	granted := r.op == wire.OpAcquire && v.Verdict == wire.Granted
	if granted && v.Clock.Lead(v.Token) > wire.Slack {
		v.Verdict = wire.Failed
		v.Err = errAhead
	}
	return first
}

// errAhead is what a granted token means that is more than a day ahead of the node's clock, which no counter comes to by
// itself. Taken for good, it would leave the key without tokens.
var errAhead = errors.New("its fencing counter of this key is more than a day ahead of its clock: " +
	"delete this node's data of the key when no process holds it")

// failed is the vote of a node that answers with an error, or not at all.
func failed(err error) quorum.Vote {
	if goredis.Says(err, "READONLY") {
		return quorum.Said(wire.Replica, err)
	}
	return quorum.Said(wire.Failed, err)
}
