package core

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lines let one contender per key out of this process at a time, first come, first served. Whoever has the
// turn contends for the key on the nodes, and keeps the turn for as long as its lease lasts.
type lines struct {
	mu sync.Mutex
	m  map[string]line // an entry exists while somebody has the turn
}

// A line is small, since each lease that is held has one.
type line struct {
	holder  holder // nil while the one whose turn it is contends
	heard   *heard // nil = nothing
	waiters []*turn
}

// A turn is what one in line waits for.
type turn struct {
	come  chan struct{}        // closed when it has
	ask   func(release *round) // asks the nodes, together with a release, before the one in line knows
	asked bool                 // it was called
}

// heard is what those in line may learn. It is not changed: a turn that passes on leaves it to the next.
type heard struct {
	trouble    error       // what the last attempt failed with, unless the key was held here since
	hint       string      // of the last holder that was heard of, here or on the nodes
	outOfReach instant     // since when no quorum of nodes has been reachable; 0 = one is, as far as is known
	nodes      []NodeReply // what the nodes said, where none is
}

// news are what was heard.
func (at line) news() heard {
	if at.heard == nil {
		return heard{}
	}
	return *at.heard
}

func (at *line) hear(news heard) {
	if at.heard = nil; news.trouble != nil || news.hint != "" {
		kept := news // allocated only here
		at.heard = &kept
	}
}

// A holder tells how long the nodes keep the key if it vanishes now.
type holder interface{ freedAfter() time.Duration }

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

// holds books that the one whose turn it is has got the key, and what it carries.
func (q *lines) holds(key string, h holder, hint string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	at.holder = h
	at.hear(heard{hint: hint})
	q.m[key] = at
}

// fails books what is known since an attempt of the one whose turn it is failed.
func (q *lines) fails(key string, news heard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	at.hear(news)
	q.m[key] = at
}

// why says why the turn does not come, or did not: what keeps its owner from the key, or that its owner has it, and
// when the nodes would free it.
func (q *lines) why(key string) (left time.Duration, news heard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	news = at.news()
	if at.holder != nil {
		left = max(at.holder.freedAfter(), 0)
	}
	if news.trouble == nil {
		news.trouble = ErrHeld
	}
	return left, news
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
	q.m[key] = line{heard: at.heard, waiters: at.waiters[1:]}
	return first
}
