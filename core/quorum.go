package core

import (
	"context"
	"math/bits"
	"sync"
	"time"
)

// A nodeSet is a set of node indexes.
type nodeSet uint64

// maxNodes fits a nodeSet; nobody votes with more.
const maxNodes = 64

func allNodes(n int) nodeSet            { return nodeSet(1)<<n - 1 }
func (s nodeSet) has(i int) bool        { return s>>i&1 == 1 }
func (s nodeSet) with(i int) nodeSet    { return s | 1<<i }
func (s nodeSet) without(i int) nodeSet { return s &^ (1 << i) }
func (s nodeSet) len() int              { return bits.OnesCount64(uint64(s)) }
func quorum(n int) int                  { return n/2 + 1 }

// A round is one script on its way to some nodes, all at once, and the votes that come back. It is over as
// soon as its outcome is decided, whichever way, or at the node timeout; requests that are still under way
// then go on, and their replies are heard late.
type round struct {
	l       *Locker
	lease   *Lease // nil in Provision
	bucket  int    // of the guard record that the script looks at
	script  *script
	args    []any                          // for every node; the client's wall clock is filled in when a request leaves
	tail    func(i int) []any              // for one node in addition; may be nil
	stamped bool                           // the script is told the client's wall clock
	must    bool                           // ask nodes in trouble too
	decided func(*round) bool              // more votes cannot change the outcome
	heard   func(*Lease, reply, bool) bool // called with every reply, late or not; may be nil

	nodeContext
	sent time.Duration // when the round began: trust starts here

	mu sync.Mutex
	tally
	queued nodeSet // requests that wait for their turn
	over   bool
	done   chan struct{} // closed when over
	few    [5]vote       // room for the votes of most
}

// A reply is a vote with its origin.
type reply struct {
	vote
	node int
	sent time.Duration
}

// send starts the round. Values of ctx reach the hooks of the clients; its end does not.
func (r *round) send(ctx context.Context, to nodeSet) {
	e := r.l.e
	r.sent = e.clock.now()
	r.nodeContext = nodeContext{values: ctx, deadline: time.Now().Add(r.l.p.nodeTimeout)}
	r.tally = newTally(r.few[:0], len(e.nodes), to)
	r.done, r.queued = make(chan struct{}), to
	for i, n := range e.nodes {
		if !to.has(i) {
			continue
		}
		b, err := n.admit(r.sent, r.l.p.nodeTimeout, r.must, r.script == acquireScript, r.bucket)
		if err != nil {
			v := vote{verdict: CircuitOpen, err: err}
			r.hear(i, v)
			r.l.heard(n, v, r)
			continue
		}
		n.lane(r.bucket).submit(request{r, b})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if to == 0 {
		r.finish()
	}
}

// request is the argument list for one node. The wall clock is read when the request is sent, after the time
// from which it is trusted: however long this process pauses in between, and whatever becomes of its clock
// meanwhile, the node then judges the request by a clock that is not older than the trust.
func (r *round) request(i int, wall time.Time) []any {
	var tail []any
	if r.tail != nil {
		tail = r.tail(i)
	} else if !r.stamped {
		return r.args
	}
	args := make([]any, len(r.args), len(r.args)+len(tail))
	copy(args, r.args)
	if r.stamped {
		args[wallArg(args)] = wall.UnixMicro()
	}
	return append(args, tail...)
}

// Places in an argument list: how many keys there are, and the first of them.
const (
	keysArg = 2 + iota
	resourceArg
	tombstoneArg
)

// wallArg is the place of the client's wall clock in an argument list.
func wallArg(args []any) int { return resourceArg + args[keysArg].(int) + 1 }

// hear counts a vote, unless it comes late.
func (r *round) hear(i int, v vote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard != nil {
		v.slept = r.heard(r.lease, reply{v, i, r.sent + v.waited}, r.over)
	}
	if r.over {
		return
	}
	r.take(i, v)
	if r.pending == 0 || r.decided(r) {
		r.finish()
	}
}

// finish ends the round. Called with its lock.
func (r *round) finish() {
	if r.over {
		return
	}
	r.over = true
	close(r.done)
}

// wait returns when the round is over; false if ctx ended first, which ends the round. The votes are the
// caller's from then on.
func (r *round) wait(ctx context.Context) bool {
	timer := time.AfterFunc(r.l.p.nodeTimeout, r.expire)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-ctx.Done():
		r.leave()
		return false
	}
}

// leave ends the round without waiting for it.
func (r *round) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish()
}

// expire counts nodes that have not answered by the node timeout as timed out.
func (r *round) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.votes {
		if r.over {
			return
		}
		if r.asked.has(i) && r.votes[i].verdict == Pending {
			v := vote{verdict: TimedOut, err: r.l.e.nodes[i].noAnswer(r.bucket), latency: r.l.p.nodeTimeout}
			switch {
			case !r.queued.has(i):
				if r.heard != nil {
					r.heard(r.lease, reply{v, i, r.sent}, false)
				}
			case !r.ends(): // it is not sent any more
				v = vote{verdict: CircuitOpen, err: errOverloaded}
			}
			r.take(i, v)
		}
	}
	r.finish()
}
