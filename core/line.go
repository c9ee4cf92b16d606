package core

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/quorum"
)

// lines let one contender per key out of this process at a time, first come, first served. Whoever has the
// turn contends for the key on the nodes, and keeps the turn for as long as its lease lasts.
type lines struct {
	mu sync.Mutex
	m  map[string]line // an entry exists while somebody has the turn
}

// A line is small, since each lease that is held has one.
type line struct {
	holder  *Lease  // nil while the one whose turn it is contends
	last    *result // what it was told last, or whoever had the turn before; nil = nothing. It is not changed
	waiters []*turn
}

// A turn is what one in line waits for.
type turn struct {
	come  chan struct{}        // closed when it has
	ask   func(release *round) // asks the nodes, together with a release, before the one in line knows
	asked bool                 // it was called
}

// tryEnter takes the turn if it is free.
func (q *lines) tryEnter(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, taken := q.m[key]; taken {
		return false
	}
	q.m[key] = line{}
	return true
}

// enter waits for the turn until ctx ends or quit is closed; then it returns false. A turn with which the nodes were
// asked is taken all the same.
func (q *lines) enter(ctx context.Context, quit <-chan struct{}, key string, t *turn) bool {
	q.mu.Lock()
	at, taken := q.m[key]
	if !taken {
		q.m[key] = line{}
		q.mu.Unlock()
		return true
	}
	t.come = make(chan struct{})
	at.waiters = append(at.waiters, t)
	q.m[key] = at
	q.mu.Unlock()

	select {
	case <-t.come:
		return true
	case <-ctx.Done():
	case <-quit:
	}
	q.mu.Lock()
	at = q.m[key]
	i := slices.Index(at.waiters, t)
	if i >= 0 {
		at.waiters = slices.Delete(at.waiters, i, i+1)
		q.m[key] = at
	}
	q.mu.Unlock()
	if i >= 0 {
		return false
	}
	<-t.come // at the same moment
	if !t.asked {
		q.leave(key) // pass it on
	}
	return t.asked
}

// holds books that the one whose turn it is has got the key.
func (q *lines) holds(key string, lease *Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	at.holder, at.last = lease, nil
	q.m[key] = at
}

// fails books what an attempt of the one whose turn it is ended with.
func (q *lines) fails(key string, res result) {
	res.nodes = slices.Clone(res.nodes) // whose error has them may change them
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	at.last = &res
	q.m[key] = at
}

// why says why the turn does not come, or did not: what keeps its owner from the key, or that its owner has it.
func (q *lines) why(key string) result {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch at := q.m[key]; {
	case at.holder != nil:
		return at.holder.inTheWay()
	case at.last != nil:
		res := *at.last
		res.nodes = slices.Clone(res.nodes)
		return res
	default:
		return result{err: ErrHeld, held: HeldForWaiter}
	}
}

// leave passes the turn on.
func (q *lines) leave(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if next := q.pass(key); next != nil {
		close(next.come)
	} else {
		delete(q.m, key)
	}
}

// next passes the turn on, if anybody waits for it; it has come when the caller says so.
func (q *lines) next(key string) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pass(key)
}

// pass takes the first in line out of it. Called with the lock.
func (q *lines) pass(key string) *turn {
	at := q.m[key]
	if len(at.waiters) == 0 {
		return nil
	}
	first := at.waiters[0]
	at.waiters[0] = nil
	if at.holder != nil {
		at.last = &result{err: ErrHeld, held: HeldForWaiter, hint: at.holder.inTheWay().hint}
	}
	q.m[key] = line{last: at.last, waiters: at.waiters[1:]}
	return first
}

// Where a process has somebody in line for a key, its release and their request leave in one batch: the key goes from
// hand to hand in one round trip. They obey the queues of the nodes like anybody else. These lines and a
// part of the line pay by 1.3 times the holds per second of a hot key next door, and twice as many over a network.

// successor is the next contender of this process, whose turn it is from now on; nil if there is none, or nothing is to
// be asked together with a release.
func (lease *Lease) successor(was leaseState, stay time.Duration) *turn {
	if e := lease.engine; was == leaseHeld && stay == 0 && !e.isClosing() {
		return e.lines.next(lease.turn())
	}
	return nil
}

// handOn sends the release, and has the next contender's request leave with it.
func (lease *Lease) handOn(next *turn, release *round) {
	defer close(next.come)
	next.asked = true
	next.ask(release)
}

// A successor is a call in line for a key.
type successor struct {
	call
	ctx   context.Context
	turn  turn
	lease *Lease // that the nodes were asked for on its behalf
	asked *round
}

// ask has the call's first request leave together with the release before it.
func (s *successor) ask(release *round) {
	s.lease = s.newLease()
	s.asked = s.lease.acquiring(false)
	s.asked.begin(s.ctx, quorum.All(len(s.e.nodes)))
	dispatch(release, s.asked)
}
