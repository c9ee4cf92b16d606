package core

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/stall"
)

// A watchdog looks after all leases of an engine, and is the list of them: one timer, set for the lease that is due first. When a
// lease is due it is renewed, or declared lost because its trusted time is over. The timer does no I/O and
// waits for none: the lanes send what it hands them, and who brings the last reply ends the round.
type watchdog struct {
	e     *node.Group
	mu    sync.Mutex
	due   leaseHeap
	timer *time.Timer
}

// Of manyLeases, renewals that are due within lookAhead go together: a little early, and in fewer batches.
const (
	manyLeases = 1000
	lookAhead  = 20 * time.Millisecond
)

// add takes a lease that is let in, which is not looked at before it is planned. Who closes the gate and then takes the lock
// sees every lease that was let in.
func (w *watchdog) add(lease *Lease, gate *gate.Gate) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !gate.Enter() {
		return false
	}
	lease.lookAt = clock.Never
	heap.Push(&w.due, lease)
	return true
}

// watch has a lease looked at at that time.
func (w *watchdog) watch(lease *Lease, at clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lease.lookAt = at
	heap.Fix(&w.due, lease.place)
	if lease.place == 0 {
		w.set()
	}
}

func (w *watchdog) remove(lease *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heap.Remove(&w.due, lease.place)
}

// set starts the timer for the first lease. Timers stand still while the machine is suspended, so none runs
// for long.
func (w *watchdog) set() {
	d := min(max(w.due[0].lookAt.Since(w.e.Clock.Now()), 0), clock.MaxTimer)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.run)
	} else {
		w.timer.Reset(d)
	}
}

// run looks at every lease that is due.
func (w *watchdog) run() {
	stall.At(stall.Timer, stall.Anywhere, w)
	w.mu.Lock()
	now := w.e.Clock.Now()
	until := now
	if len(w.due) >= manyLeases {
		until = now.Add(lookAhead)
	}
	var due []*Lease
	for len(w.due) > 0 && w.due[0].lookAt <= until {
		due = append(due, w.due[0])
		w.due[0].lookAt = clock.Never // until it is planned again
		heap.Fix(&w.due, 0)
	}
	if len(w.due) > 0 {
		w.set()
	}
	w.mu.Unlock()
	var renewals []*renewal
	for _, lease := range due {
		if r := lease.inspect(now, until); r != nil {
			renewals = append(renewals, r)
		}
	}
	for _, r := range renewals { // now that the leases that are over have ended
		r.start()
	}
}

// leaseHeap orders leases by when they are due.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].lookAt < h[j].lookAt }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *leaseHeap) Push(x any) {
	x.(*Lease).place = len(*h)
	*h = append(*h, x.(*Lease))
}

func (h *leaseHeap) Pop() any {
	old := *h
	lease := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return lease
}

// A renewal is a round that extends a lease. Nobody waits for the watchdog's: whoever brings the vote that decides it
// goes on from there, and the watchdog ends it when its time is up.
type renewal struct {
	node.Round
	lease     *Lease
	margin    time.Duration // of the lease when it began
	end       func(Outcome) // nil where nobody observes
	expiresAt clock.Instant // when it has had its time; Never: it is not on its way. Guarded by the lease's lock
}

// renewable reports whether the lease lives on only if it is renewed, and its holder still wants it. Called with the lock.
func (lease *Lease) renewable() bool { return lease.outlivesTrust() && lease.ctx.Context.Err() == nil }

// plan has the lease looked at when it is to be renewed, when the renewal under way has had its time, or when
// the lease's trusted time is over. Called with the lock.
func (lease *Lease) plan() {
	at := lease.until.Load()
	if r := lease.renewing; r != nil {
		at = min(at, r.expiresAt)
	} else if lease.renewable() {
		at = min(at, lease.renewAt)
	}
	lease.e.watchdog.watch(lease, at)
}

// inspect does what is due, and returns the renewal that is, by then, which is to be sent.
func (lease *Lease) inspect(now, then clock.Instant) (due *renewal) {
	lease.expire()
	lease.mu.Lock()
	if lease.state != leaseHeld {
		lease.mu.Unlock()
		return nil
	}
	var late *renewal
	switch r := lease.renewing; {
	case r != nil && now >= r.expiresAt:
		late, r.expiresAt = r, clock.Never
	case r == nil && then >= lease.renewAt && lease.renewable():
		due = lease.renewal()
		lease.renewing = due
	}
	lease.plan()
	lease.mu.Unlock()
	if late != nil {
		late.Expire() // which plans the next
	}
	return due
}

// renewal makes the round of a renewal. Called with the lock.
func (lease *Lease) renewal() *renewal {
	r := &renewal{lease: lease, expiresAt: clock.Never}
	r.Init(lease.bucket, wire.OpRenew, lease.p.nodeTimeout, asking{lease}, (*node.Round).Settled)
	lease.reached = quorum.All(len(lease.nodes)) // from now on a release has to reach all of them
	r.Each = lease.lock.Renew(lease.p.lease, len(lease.nodes), func(i int) wire.Renew {
		return wire.Renew{Token: lease.token, Confirmed: lease.nodes[i].expiry, Turn: lease.p.turn, Carried: lease.p.carries}
	})
	return r
}

// start sends a round of the watchdog's. An observer is the user's code, which its timer does not wait for.
func (r *renewal) start() {
	r.OnOver = r.conclude
	if o := &r.lease.p.observer; o.Start != nil || o.Node != nil {
		r.Tasks.Go(r.sendOff)
	} else if r.Tasks.Enter() {
		defer r.Tasks.Leave()
		r.sendOff()
	}
}

// sendOff sends the round. Its time begins now, and not when it was made: in between, this process may have been busy
// elsewhere, or paused.
func (r *renewal) sendOff() {
	lease := r.lease
	r.margin = lease.left()
	ctx := lease.ctx.parent
	if lease.p.observer.Start != nil {
		ctx, r.end = lease.p.observe(context.WithoutCancel(ctx), OpRenew, lease.lock.Key, false, lease.token)
	}
	r.Send(ctx, quorum.All(len(r.Group.Nodes)))
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.renewing == r && lease.state == leaseHeld { // it is not over yet
		r.expiresAt = r.Sent.Add(r.Timeout)
		lease.plan()
	}
}

// conclude ends a round of the watchdog's: the lease is extended from the moment the round began if a quorum confirms it,
// lost if no quorum can, and tried again soon otherwise.
func (r *renewal) conclude() {
	lease, t := r.lease, &r.Tally
	fate := t.Renewed()
	reason := fates[fate].reason
	if reason != "" {
		lease.lose(reason)
	}
	lease.replan(r.Sent, fate == quorum.Confirmed, t.Count(wire.Gone) > 0)
	if r.end == nil {
		return
	}
	out := Outcome{Reason: reason, Token: lease.token, Margin: r.margin, Nodes: replies(lease.e.Group, t)}
	out.Err = fateError(OpRenew, lease.lock.Key, fate, out.Nodes)
	r.Tasks.Go(func() { r.end(out) })
}

// replan notes the end of a round that was sent at that time, and plans the next. A node that others
// were in keeps a turn for this lease, so the next round comes before that ends; but every other one at most is early.
func (lease *Lease) replan(sent clock.Instant, ok, occupied bool) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.renewing = nil
	if lease.state != leaseHeld {
		return
	}
	soon := lease.e.Clock.Now().Add(lease.p.ttl / 20)
	if ok = ok && lease.left() > 0; ok { // a reply that comes after validity extends nothing
		lease.trust(sent)
	}
	lease.renewed(ok, occupied, soon, sent.Add(lease.renewalPeriod()))
	lease.plan()
}

// renewalPeriod is drawn anew each time, so that leases taken together are not renewed together for ever.
func (lease *Lease) renewalPeriod() time.Duration {
	tenth := lease.p.renewEvery / 10
	return lease.p.renewEvery - tenth + time.Duration(lease.e.jitter(int64(2*tenth)+1))
}
