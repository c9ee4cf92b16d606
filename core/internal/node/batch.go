package node

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A batch is requests that travel to a node together.
type batch struct {
	l        *lane
	slots    *slots // one is taken; nil = it needs none
	company  bool   // it waits a moment for that
	requests []request
	weight   int
	votes    []quorum.Vote
	err      error // nothing was answered, or not one reply to each request
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// load takes requests from a queue, and returns what is left of it.
func (f *batch) load(queue []request) []request {
	n := 0
	for ; n < len(queue); n++ {
		weight := max(1+queue[n].r.Bulk/bulkOfOne, queue[n].weight)
		if queue[n].r.op.Alone() {
			weight = MaxBatch
		}
		if f.weight += weight; f.weight > MaxBatch && f.weight > weight {
			break
		}
	}
	f.requests = append(f.requests, queue[:n]...)
	left := copy(queue, queue[n:])
	clear(queue[left:])
	return queue[:left]
}

// run sends what waits, and hands out the answers. Those that were answered together are about to ask again, and get the time
// to: without it, four callers have 0.7 of the locks per second.
func (f *batch) run() {
	l := f.l
	if f.company {
		runtime.Gosched()
	}
	l.mu.Lock()
	l.urgent = f.load(l.urgent)
	if len(f.requests) > 0 || f.slots != nil { // what was urgent may have left meanwhile
		l.asking = f.load(l.asking)
	}
	l.company = max(l.company-1, min(len(f.requests)-1, 1)*companyLasts)
	l.mu.Unlock()
	sent, wall := l.g.Clock.Now(), time.Now()
	f.filter(sent)
	f.call(sent, wall)
	now, clock := l.g.Clock.Now(), time.Now()
	answered := len(f.votes) > 0 && goredis.Answered(f.votes[0].Err) // all are, or none
	l.mu.Lock()
	l.took += (now.Since(sent) - l.took) / 4
	if l.underWay--; answered {
		l.g.answered.Store(now)
	} else {
		l.urgent = append(l.urgent, f.salvage(now)...)
	}
	l.mu.Unlock()
	if f.slots != nil {
		f.slots.exit()
	}
	f.deliver(sent, now, clock)

	clear(f.requests)
	clear(f.votes)
	*f = batch{requests: f.requests[:0], votes: f.votes[:0]}
	batchPool.Put(f)
}

// salvage returns the requests of a batch whose connection broke that are to be sent again, over other connections and
// fewer at a time: a network that breaks connections must not cost the leases that happened to travel together. Scripts
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
		lost = append(lost, request{r: r, b: q.b, losses: q.losses + 1, weight: MaxBatch / max(1, len(f.requests)/2)})
	}
	return lost
}

// filter leaves out what is not to be sent any more. The wall clock has been read: what is sent after the end of
// its attempt looks older to the node than the tombstone.
func (f *batch) filter(now clock.Instant) {
	n, kept := f.l.n, f.requests[:0]
	for _, q := range f.requests {
		if !q.r.departs(n.Index, now) {
			q.r.drop(n, q.b)
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
		ctx = &nodeContext{}
		if len(f.requests) == 1 {
			ctx.values = first.values
		}
		for _, q := range f.requests {
			if deadline := wall.Add(q.r.Timeout); deadline.After(ctx.deadline) {
				ctx.deadline = deadline
			}
		}
	}
	request := func(i int) wire.Request { return f.requests[i].r.to(n.Index) }
	call := l.g.Head.Load().Encode(len(f.requests), request, n.Memory(first.bucket), wall)
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
	// What follows may log, which is the user's code: the votes must not wait for it.
	if longest > 0 {
		f.l.g.tellLongest(longest, n)
	}
	observed := false
	for i, q := range f.requests {
		if q.again {
			continue
		}
		if f.err == nil || !observed {
			f.l.g.observeVote(n, f.votes[i], q.r)
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
		if v.Verdict == wire.ClockSkewed && v.Skew.Abs() <= f.l.g.Conf.Window { // the clocks agree
			v.Verdict = wire.TooLate
		}
	}
	n.heardMemory(r.bucket, v.Memory)
	if known := n.Memory(r.bucket); v.Memory == known {
		v.Memory = known // a lease keeps it, and would keep all of the reply
	}
	first = v.Longest > 0 && f.l.g.Learn(v.Longest)
	if r.op == wire.OpAcquire && v.Verdict == wire.Granted && wire.Leads(v.Token, v.Clock) > wire.Slack {
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
