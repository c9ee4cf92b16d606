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
	// MaxBatch keeps a batch at about a millisecond of the server's time. Each request counts as one, and as one
	// more for every bytesPerUnit bytes of its payload.
	MaxBatch     = 128
	bytesPerUnit = 512
	// maxRetries is how often a request is sent again at once because its connection broke.
	maxRetries = 2
)

// A batch carries requests to a node together. Only the goroutine that sends it uses it.
type batch struct {
	lane     *lane
	slots    *slotPool // the batch holds one of its slots; nil if it needs none
	yields   bool      // it waits a moment for more requests
	requests []request
	size     int  // the number of requests that are not stale
	weight   int  // of these
	maxSize  int  // limits size; 0 stands for MaxBatch
	full     bool // a request did not fit, so later ones must not overtake it
	votes    []quorum.Vote
	err      error // all requests failed: no answer came, or it did not have one reply for each request
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// load moves requests from the front of a queue to the batch until it is full, and returns the remaining queue. A
// stale request is moved without being counted: filter drops it.
func (b *batch) load(queue []request, now clock.Instant) []request {
	taken := 0
	for ; taken < len(queue) && !b.full; taken++ {
		if queue[taken].round.isStale(now) {
			continue
		}
		b.full = !b.fits(queue[taken])
		if b.full {
			break
		}

		b.size++
		b.weight += queue[taken].weight()
		b.maxSize = b.maxSizeWith(queue[taken])
	}

	b.requests = append(b.requests, queue[:taken]...)
	left := copy(queue, queue[taken:])
	clear(queue[left:])
	return queue[:left]
}

// sweep moves all stale requests from a queue to the batch, and returns the remaining queue. As in load, they are not
// counted.
func (b *batch) sweep(queue []request, now clock.Instant) []request {
	kept := queue[:0]
	for _, q := range queue {
		if q.round.isStale(now) {
			b.requests = append(b.requests, q)
		} else {
			kept = append(kept, q)
		}
	}

	clear(queue[len(kept):])
	return kept
}

// fits reports whether the batch has room for q. An empty batch has room for any request.
func (b *batch) fits(q request) bool {
	if b.size == 0 {
		return true
	}
	return b.size < b.maxSizeWith(q) && b.weight+q.weight() <= MaxBatch
}

// maxSizeWith returns the number of requests that the batch may have if q is one of them.
func (b *batch) maxSizeWith(q request) int {
	return min(cmp.Or(b.maxSize, MaxBatch), cmp.Or(q.maxBatch, MaxBatch))
}

// send sends the queued requests and delivers the replies. Callers answered together tend to ask again at once;
// yielding lets them share a batch. Without it, four callers have 0.7 of the locks per second.
func (b *batch) send() {
	l := b.lane
	stall.At(stall.Leave, l.node.Index, l.Group)
	if b.yields {
		runtime.Gosched()
	}

	l.mu.Lock()
	b.takeQueued(l.Clock.Now())
	l.mu.Unlock()

	// The wall clock, which the node will see, is read before filter looks whether attempts are over. So a request
	// that was sent although its attempt has ended since looks older to the node than the tombstone.
	sent := l.Clock.Now()
	wall := time.Now()
	b.filter(sent)

	stall.At(stall.Call, l.node.Index, l.Group)
	defer b.finish(sent) // also if a hook of the client ends the goroutine
	b.exchange(sent, wall)
}

// takeQueued moves requests from the queues of the lane to the batch. l.mu must be held.
func (b *batch) takeQueued(now clock.Instant) {
	l := b.lane

	// In a long queue, stale requests may stand behind others that stay worth sending for longer.
	isLong := len(l.urgent) >= sweepLength
	if isLong && now.Since(l.sweptAt) >= l.Conf.Timeout {
		l.urgent = b.sweep(l.urgent, now)
		l.sweptAt = now
	}

	l.urgent = b.load(l.urgent, now)

	// A batch that has no slot was made for urgent requests. If another batch has taken all of them meanwhile, this one
	// must not carry acquisitions: they need a slot.
	if len(b.requests) > 0 || b.slots != nil {
		l.acquires = b.load(l.acquires, now)
	}

	l.waitForPeers = max(l.waitForPeers-1, min(len(b.requests)-1, 1)*peerBatches)
}

// errHookExited is the error of a batch if a hook has ended its goroutine.
var errHookExited = errors.New("a hook of the client has ended its goroutine (runtime.Goexit)")

// finish delivers the replies to a batch that was sent, and puts the batch back into the pool.
func (b *batch) finish(sent clock.Instant) {
	l := b.lane
	if len(b.votes) < len(b.requests) {
		b.err = errHookExited
		b.votes = slices.Repeat([]quorum.Vote{failedVote(errHookExited)}, len(b.requests))
	}

	now := l.Clock.Now()
	wall := time.Now()
	answered := len(b.votes) > 0 && goredis.Answered(b.votes[0].Err) // all were answered, or none

	// The retries are queued before other batches can start.
	l.mu.Lock()
	l.latency += (now.Since(sent) - l.latency) / 4
	l.inFlight--
	if answered {
		l.lastAnswer.Store(now)
	} else {
		l.urgent = append(l.urgent, b.takeRetries(now)...)
	}
	l.mu.Unlock()

	if b.slots != nil {
		b.slots.put()
	}

	stall.At(stall.Deliver, l.node.Index, l.Group)
	b.deliver(sent, now, wall)
	stall.At(stall.After, l.node.Index, l.Group)

	// The pool must not keep rounds and replies alive.
	clear(b.requests)
	clear(b.votes)
	*b = batch{requests: b.requests[:0], votes: b.votes[:0]}
	batchPool.Put(b)
}

// takeRetries returns the requests that must be sent again because their connection broke. They travel over other
// connections, and in batches of at most half the size: a network that breaks connections must not cost the leases
// that happened to travel together.
//
// Scripts are idempotent per attempt, and trust counts from the start of the round, whichever request is answered.
// The lost request may still arrive, so the attempt has one more unanswered request.
func (b *batch) takeRetries(now clock.Instant) (retries []request) {
	if len(b.votes) == 0 || !goredis.ConnectionLost(b.votes[0].Err) {
		return nil
	}
	for i := range b.requests {
		q := &b.requests[i]
		if !q.canRetry(now) {
			continue
		}

		// The first request stays counted until deliver; the retry counts from now on.
		b.lane.node.adjustInFlight(q.breaker, 1)
		q.retried = true

		retries = append(retries, request{
			round:    q.round,
			breaker:  q.breaker,
			retries:  q.retries + 1,
			maxBatch: max(1, len(b.requests)/2),
		})
	}
	return retries
}

// filter removes and rejects the requests that must not be sent any more. The wall clock must have been read
// before: a request that is sent after the end of its attempt then looks older to the node than the tombstone.
func (b *batch) filter(now clock.Instant) {
	n := b.lane.node
	kept := b.requests[:0]
	for _, q := range b.requests {
		ok := q.round.startSend(n.Index, now)
		if ok {
			kept = append(kept, q)
		} else {
			q.round.reject(n, q.breaker, now)
		}
	}

	// The rejected requests must not keep their rounds alive.
	clear(b.requests[len(kept):])
	b.requests = kept
}

// exchange sends the requests, and decodes the reply into votes.
func (b *batch) exchange(sent clock.Instant, wall time.Time) {
	if len(b.requests) == 0 {
		return
	}

	l := b.lane
	n := l.node
	ctx := b.context(sent, wall)
	request := func(i int) wire.Request { return b.requests[i].round.requestFor(n.Index) }

	call := l.Head.Load().Encode(len(b.requests), request, l.Memory(n.Index), wall)
	reply, err := runScript(ctx, n.Client, call)
	var answers wire.Answers
	if err == nil {
		answers, err = call.Answers(reply)
	}
	b.err = err

	for i := range b.requests {
		if err != nil {
			b.votes = append(b.votes, failedVote(err))
			continue
		}

		reply, err := answers.Next(request(i))
		if err != nil {
			b.votes = append(b.votes, failedVote(err))
			continue
		}
		b.votes = append(b.votes, quorum.Vote{Reply: reply})
	}
}

// context returns the context for the client. A lone request that left in time uses the context of its round. Any
// other batch may take the longest timeout of its rounds, from now. The values of a caller's context reach the
// hooks of the client only if its request is alone.
func (b *batch) context(sent clock.Instant, wall time.Time) *nodeContext {
	first := b.requests[0].round
	alone := len(b.requests) == 1
	if alone && sent.Since(first.Sent) <= first.Timeout/4 {
		return &first.nodeContext
	}

	ctx := &nodeContext{Context: context.Background(), deadlines: b.lane.deadlines} //nolint:forbidigo // belongs to no caller
	if alone {
		ctx.Context = first.Context
	}

	for _, q := range b.requests {
		deadline := wall.Add(q.round.Timeout)
		if deadline.After(ctx.deadline) {
			ctx.deadline = deadline
		}
	}
	return ctx
}

// deliver passes the votes to their rounds, and then to the log and the observer.
func (b *batch) deliver(sent, now clock.Instant, wall time.Time) {
	n := b.lane.node
	var longest time.Duration // the longest max TTL, if this process learns it from this batch
	for i, q := range b.requests {
		v := &b.votes[i]
		if b.isSameFailure(i) {
			n.adjustInFlight(q.breaker, -1)
		} else {
			n.end(q.breaker, now, v.Err)
		}
		if q.retried {
			continue
		}

		v.QueueTime = sent.Since(q.round.Sent)
		v.Latency = now.Since(sent)
		isNew := b.checkVote(v, q.round, wall)
		if isNew {
			longest = v.Longest
		}
		q.round.addVote(n.Index, *v)
	}

	if longest > 0 {
		b.lane.logLongest(longest, n)
	}

	// All rounds have their votes by now, so the callers need not wait for the rest. A batch that failed as a whole
	// says the same of its node once.
	observed := false
	for i, q := range b.requests {
		if q.retried {
			continue
		}
		if b.err == nil || !observed {
			b.lane.observeVote(n, b.votes[i], q.round)
		}
		observed = true
		q.round.observeReply(n, &b.votes[i])
	}
}

// isSameFailure reports whether the breaker already knows the failure of a request: the batch failed as a whole, or
// the request is a retry, and failed with its first batch before.
func (b *batch) isSameFailure(i int) bool {
	q := b.requests[i]
	if b.err != nil && i > 0 && q.breaker == b.requests[i-1].breaker {
		return true
	}
	return q.retries > 0 && !goredis.Answered(b.votes[i].Err)
}

// checkVote records a vote's information about its node, and turns an impossible grant into a failure. It reports
// whether this process learns of a longer max TTL for the first time.
func (b *batch) checkVote(v *quorum.Vote, r *Round, wall time.Time) (isNew bool) {
	l := b.lane
	n := l.node
	if v.Clock != 0 {
		v.Skew = v.Clock.Skew(wall)
		n.addClockSample(v.Skew, v.Latency)

		// The node refused the request as outside of the clock window, but the clocks agree: it was late.
		if v.Verdict == wire.ClockSkewed && v.Skew.Abs() <= l.Conf.Window {
			v.Verdict = wire.TooLate
		}
	}

	// A lease keeps the memory of its vote. The shared copy does not keep the whole reply alive.
	l.setMemory(n.Index, v.Memory)
	known := l.Memory(n.Index)
	if v.Memory == known {
		v.Memory = known
	}

	isNew = v.Longest > 0 && l.LearnMaxTTL(v.Longest)

	granted := r.op == wire.OpAcquire && v.Verdict == wire.Granted
	if granted && v.Clock.Lead(v.Token) > wire.ExpirySlack {
		v.Verdict = wire.Failed
		v.Err = errTokenAhead
	}
	return isNew
}

// errTokenAhead reports a granted token more than a day ahead of the node's clock; no counter gets there by counting.
// If the token were accepted, no tokens would be left for the key.
var errTokenAhead = errors.New("its fencing counter of this key is more than a day ahead of its clock: " +
	"delete this node's data of the key when no process holds it")

// failedVote returns the vote of a node that answers with an error, or not at all.
func failedVote(err error) quorum.Vote {
	if goredis.HasReplyPrefix(err, "READONLY") {
		return quorum.NewVote(wire.Replica, err)
	}
	return quorum.NewVote(wire.Failed, err)
}
