package core

import (
	"sync"
	"time"
)

const (
	// maxBatch keeps a batch at about a millisecond of the server's time.
	maxBatch = 128
	// While a batch is under way the next one waits for so long, at least and at most, to have company.
	minPace, maxPace = 200 * time.Microsecond, 5 * time.Millisecond
)

// A lane is the way to a node, or to what one guard bucket of a Redis Cluster holds. A request that comes alone
// leaves at once. What comes while others are under way leaves together, as one batch: soon, not when they have
// been answered, so that an answer which is slow to come holds nobody up for long. Renewals and ends of attempts
// go first: load must not cost a lease. The batches under way use as many connections as the client has;
// acquisitions alone no more than half of them.
type lane struct {
	e *engine
	n *node

	mu      sync.Mutex
	urgent  []request
	asking  []request // acquisitions
	flights int       // batches under way
	left    time.Duration
	latency time.Duration // of the last answer
	slots   *slots
	inLine  bool // for a slot
	timer   *time.Timer
	armed   bool
}

// A request is what a round asks of one node.
type request struct {
	r *round
	b *breaker // that has admitted it
}

// submit has a request sent.
func (l *lane) submit(q request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slots = q.b.slots
	switch {
	case q.r.script.word == nil:
		l.flights++ // without a place among others
		l.launch([]request{q}, nil)
		return
	case q.r.script == acquireScript:
		l.asking = append(l.asking, q)
	default:
		l.urgent = append(l.urgent, q)
	}
	l.next()
}

// next has a batch leave if one may. Called with the lane's lock.
func (l *lane) next() {
	now := l.e.clock.now()
	for len(l.asking) > 0 && l.asking[0].r.stale(now) { // they would only take room
		l.asking[0].r.drop(l.n, l.asking[0].b)
		l.asking = l.asking[1:]
	}
	if len(l.urgent)+len(l.asking) == 0 || l.flights >= l.n.connections {
		return
	}
	if wait := l.left + l.pace() - now; l.flights > 0 && wait > 0 {
		l.wakeAfter(wait)
		return
	}
	var s *slots
	if len(l.urgent) == 0 {
		if s = l.slots; !s.enter(l) {
			return
		}
	}
	l.flights++
	l.left = now
	var batch []request
	batch, l.urgent = load(batch, l.urgent)
	batch, l.asking = load(batch, l.asking)
	l.launch(batch, s)
}

// load moves requests from a queue to a batch.
func load(batch, queue []request) (fuller, rest []request) {
	n := min(len(queue), maxBatch-len(batch))
	batch = append(batch, queue[:n]...)
	left := copy(queue, queue[n:])
	clear(queue[left:])
	return batch, queue[:left]
}

func (l *lane) launch(batch []request, s *slots) {
	l.e.tasks.Add(1)
	go func() {
		defer l.e.tasks.Done()
		l.fly(batch, s)
	}()
}

// pace spreads the batches evenly over the time that an answer takes.
func (l *lane) pace() time.Duration {
	return min(max(l.latency/time.Duration(l.n.connections), minPace), maxPace)
}

func (l *lane) wakeAfter(d time.Duration) {
	switch {
	case l.armed:
	case l.timer == nil:
		l.timer = time.AfterFunc(d, l.wake)
	default:
		l.timer.Reset(d)
	}
	l.armed = true
}

// wake is the timer's: it may be late, when nothing is left to do.
func (l *lane) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	l.next()
}

// fly sends a batch and hands out the answers.
func (l *lane) fly(batch []request, s *slots) {
	e, n := l.e, l.n
	sent, wall := e.clock.now(), time.Now()
	// In this order: what is sent after the end of its attempt looks older to the node than the tombstone.
	kept := batch[:0]
	for _, q := range batch {
		if q.r.stale(sent) {
			q.r.drop(n, q.b)
			continue
		}
		q.r.depart(n.index)
		kept = append(kept, q)
	}
	votes := l.call(kept, wall)
	now := e.clock.now()

	l.mu.Lock()
	l.flights--
	if len(kept) > 0 {
		l.latency = now - sent
	}
	l.next()
	l.mu.Unlock()
	if s != nil {
		s.exit()
	}
	l.hand(kept, votes, sent, now)
}

// hand gives the answers to those who wait for them.
func (l *lane) hand(batch []request, votes []vote, sent, now time.Duration) {
	n := l.n
	clock := time.Now()
	var news []*vote
	for i, q := range batch {
		v, r := &votes[i], q.r
		n.leave(q.b, now, v.err)
		v.waited, v.latency = sent-r.sent, now-sent
		if v.clock != 0 {
			v.skew = time.Duration(v.clock-clock.UnixMicro()) * time.Microsecond
			n.heardClock(v.skew, v.latency)
			if v.verdict == ClockSkewed && v.skew.Abs() <= r.l.p.window {
				v.verdict = TooLate
			}
		}
		n.heardMemory(r.bucket, v.memory)
		if v.longest > 0 && r.l.learn(v.longest) {
			news = append(news, v)
		}
		if r.script == acquireScript {
			if err := v.implausible(clock); err != nil {
				v.verdict, v.err = Failed, err
			}
		}
		r.hear(n.index, *v)
	}
	// What follows may log, which is the user's code: the votes must not wait for it.
	for _, v := range news {
		batch[0].r.l.tellLongest(v.longest, n)
	}
	for i, q := range batch {
		l.e.noticed(n, votes[i], q.r)
		q.r.l.heard(n, votes[i], q.r)
	}
}

// call sends requests, together unless there is only one.
func (l *lane) call(batch []request, wall time.Time) []vote {
	switch len(batch) {
	case 0:
		return nil
	case 1:
		r := batch[0].r
		return []vote{l.n.call(&r.nodeContext, r.script, r.request(l.n.index, wall))}
	}
	ctx := &nodeContext{deadline: wall.Add(batch[0].r.l.p.nodeTimeout)}
	replies, err := batchScript.runBatch(ctx, l.n.client, together(l.n.index, batch, wall))
	if err == nil && len(replies) != len(batch) {
		err = errBadReply
	}
	votes := make([]vote, len(batch))
	for i, q := range batch {
		switch {
		case err != nil:
			votes[i] = failed(err)
		default:
			votes[i] = q.r.script.parseInBatch(replies[i])
		}
	}
	return votes
}

// together is the argument list of a batch.
func together(node int, batch []request, wall time.Time) []any {
	first := batch[0].r
	args := make([]any, 0, 12+14*len(batch))
	args = append(args, evalsha, batchScript.sha, nil)
	for _, q := range batch {
		args = append(args, q.r.args[resourceArg], q.r.args[tombstoneArg])
	}
	if first.l.p.guarded {
		args = append(args, first.l.e.guards[first.bucket])
	}
	args[keysArg] = len(args) - 3
	args = first.l.head(append(args, noMemory))
	args[wallArg(args)] = wall.UnixMicro()
	for _, q := range batch {
		args = q.r.inBatch(node, args)
	}
	return args
}

// inBatch appends what a batch says of the round's request to a node.
func (r *round) inBatch(node int, args []any) []any {
	own := r.args[resourceArg+r.args[keysArg].(int):] // attempt, and what follows
	args = append(args, r.script.word, own[0])
	if r.script == releaseScript {
		args, own = append(args, 0), own[1:]
	} else {
		args, own = append(args, own[3]), own[8:]
	}
	full := len(args) + r.script.tail
	args = append(args, own...)
	if r.tail != nil {
		args = append(args, r.tail(node)...)
	}
	if len(args) < full {
		args = append(args, "") // acquire, with nothing to carry
	}
	return args
}

// stale reports whether a request that waited for its turn is not to be sent any more. What ends an attempt
// always is.
func (r *round) stale(now time.Duration) bool {
	switch r.script {
	case acquireScript: // half the time is for the answer
		return r.lease.isEnded() || now-r.sent > r.l.p.nodeTimeout/2
	case renewScript:
		return r.lease.isEnded() || now-r.sent > r.l.p.nodeTimeout
	}
	return false
}

// drop votes for a node that is not asked.
func (r *round) drop(n *node, b *breaker) {
	n.leave(b, 0, errOverloaded)
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if !over {
		r.hear(n.index, vote{verdict: CircuitOpen, err: errOverloaded})
	}
}

// depart notes that the request to a node is sent.
func (r *round) depart(node int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued = r.queued.without(node)
}
