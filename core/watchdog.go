package core

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// A watchdog looks after all leases of an engine: one timer, set for the lease that is due first. When a
// lease is due it is renewed, or declared lost because its trusted time is over. The timer does no I/O and
// waits for none: a round of renewal runs on a goroutine of its own.
type watchdog struct {
	e     *engine
	mu    sync.Mutex
	due   leaseHeap
	timer *time.Timer
}

// watch has a lease looked at at that time.
func (w *watchdog) watch(lease *Lease, at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lease.next = at
	if lease.place >= 0 {
		heap.Fix(&w.due, lease.place)
	} else {
		heap.Push(&w.due, lease)
	}
	if lease.place == 0 {
		w.set()
	}
}

func (w *watchdog) remove(lease *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lease.place >= 0 {
		heap.Remove(&w.due, lease.place)
	}
	if len(w.due) == 0 && w.timer != nil {
		w.timer.Stop()
	}
}

// set starts the timer for the first lease. Timers stand still while the machine is suspended, so none runs
// for long.
func (w *watchdog) set() {
	d := min(max(w.due[0].next-w.e.clock.now(), 0), longestNap)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.run)
	} else {
		w.timer.Reset(d)
	}
}

// run looks at every lease that is due.
func (w *watchdog) run() {
	w.mu.Lock()
	now := w.e.clock.now()
	var due []*Lease
	for len(w.due) > 0 && w.due[0].next <= now {
		due = append(due, heap.Pop(&w.due).(*Lease))
	}
	if len(w.due) > 0 {
		w.set()
	}
	w.mu.Unlock()
	for _, lease := range due {
		lease.inspect(now)
	}
}

// leaseHeap orders leases by when they are due.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *leaseHeap) Push(x any) {
	lease := x.(*Lease)
	lease.place = len(*h)
	*h = append(*h, lease)
}

func (h *leaseHeap) Pop() any {
	old := *h
	lease := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	lease.place = -1
	return lease
}

// plan has the lease looked at when it is to be renewed, or when its trusted time is over. Called with the
// lease's lock.
func (lease *Lease) plan() {
	at := time.Duration(lease.until.Load())
	if !lease.renewing && lease.renewable() {
		at = min(at, lease.renewAt)
	}
	lease.l.e.watchdog.watch(lease, at)
}

// renewable: there is a watchdog, the holder has not been holding for too long, and still wants the lease.
func (lease *Lease) renewable() bool {
	p := &lease.l.p
	return !p.fixed && (p.maxHold == 0 || lease.renewAt-lease.granted < p.maxHold) && lease.ctx.Context.Err() == nil
}

// inspect does what is due.
func (lease *Lease) inspect(now time.Duration) {
	if now >= time.Duration(lease.until.Load()) {
		lease.lose(lease.expiry())
		return
	}
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.state != leaseHeld {
		return
	}
	if now >= lease.renewAt && !lease.renewing && lease.renewable() {
		lease.renewing = true
		lease.l.e.spawn(lease.renew)
	}
	lease.plan()
}

// renewalPeriod is drawn anew each time, so that leases taken together are not renewed together for ever.
func (l *Locker) renewalPeriod() time.Duration {
	tenth := l.p.renewEvery / 10
	return l.p.renewEvery - tenth + time.Duration(l.e.jitter(int64(2*tenth)+1))
}

// renew runs one round: the lease is extended from the moment the round began if a quorum confirms it,
// lost if no quorum can, and tried again soon otherwise.
func (lease *Lease) renew() {
	l := lease.l
	tails := make([][]any, len(lease.nodes))
	lease.mu.Lock()
	held := lease.state == leaseHeld
	if held { // otherwise the release is under way, and has no reason to go to nodes that were never asked
		lease.asked = allNodes(len(lease.nodes)) // from now on a release has to reach all of them
		for i := range tails {
			tails[i] = []any{lease.token, lease.nodes[i].expiry, 0, noMemory, l.p.turnMs}
		}
	}
	lease.mu.Unlock()
	if !held {
		return
	}
	margin := lease.left()
	ctx, end := l.observe(context.WithoutCancel(lease.ctx.parent), OpRenew, lease.key, false, lease.token)
	r := round{l: l, lease: lease, bucket: lease.bucket, script: renewScript, stamped: true, args: lease.args(renewScript, 0),
		tail:    func(i int) []any { return tails[i] },
		decided: func(r *round) bool { return r.settled() }, heard: (*Lease).confirmed}
	r.send(ctx, allNodes(len(l.e.nodes)))
	r.wait(context.Background())
	t := &r.tally

	var err *OpError
	switch {
	case t.confirmed() && t.slept() >= t.q:
		lease.lose(LossClock)
		err = &OpError{Err: ErrLost, Reason: LossClock}
	case t.confirmed():
	case t.outvoted():
		lease.lose(LossTaken)
		err = &OpError{Err: ErrLost, Reason: LossTaken}
	default:
		err = &OpError{Err: ErrUnavailable}
	}
	lease.renewed(r.sent, err == nil, t.count(Gone) > 0)
	if end != nil {
		out := Outcome{Token: lease.token, Margin: margin, Nodes: l.report(t, true)}
		if err != nil {
			err.Op, err.Key, err.Nodes = OpRenew, lease.key, out.Nodes
			out.Err, out.Reason = err, err.Reason
		}
		end(out)
	}
}

// renewed notes the end of a round that was sent at that time, and plans the next. A node that others were in
// keeps a turn for this lease, so the next round comes before that ends; but every other one at most is early.
func (lease *Lease) renewed(sent time.Duration, ok, occupied bool) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.renewing = false
	if lease.state != leaseHeld {
		return
	}
	p := &lease.l.p
	lease.renewAt = lease.l.e.clock.now() + p.ttl/20
	if ok && lease.left() > 0 { // a reply that comes after validity extends nothing
		lease.trust(sent)
		if lease.rejoining = occupied && !lease.rejoining; !lease.rejoining {
			lease.renewAt = sent + lease.l.renewalPeriod()
		}
	}
	lease.plan()
}

// confirmed books a confirmation, and says whether it shows that this machine's clock stood still since the
// one before: more time has passed on the node than can have passed here.
func (lease *Lease) confirmed(got reply, _ bool) (slept bool) {
	switch got.verdict {
	case Granted, Healed, Passed:
	default:
		return false
	}
	lease.mu.Lock()
	defer lease.mu.Unlock()
	s := &lease.nodes[got.node]
	if window := lease.l.p.window; window > 0 && s.clock != 0 {
		there := time.Duration(got.clock-s.clock) * time.Microsecond
		here := got.sent + got.latency - s.sent
		slept = there-here > window
	}
	s.confirmed(got)
	// A node that was taken again may have forgotten who was granted the key meanwhile; but nobody was who could
	// act on it, as long as this lease is trusted when it hears of it.
	if lease.state == leaseHeld && !lease.completing && lease.left() > 0 {
		s.memory = got.memory
	}
	return slept
}
