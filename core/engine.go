package core

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/internal/gate"
)

// An engine is what all Lockers derived from one another share: nodes, local queue, watchdog.
type engine struct {
	*node.Group
	lines    *queue.Local[result]
	waits    queue.Board
	jitter   func(n int64) int64 // uniform in [0, n)
	attempts atomic.Uint64       // made so far, to name them
	watchdog watchdog
	hangUp   func() error // closes the clients, once; nil = they are the caller's

	// Calls under way, and leases. What acquires enters, and is refused once the engine is closing; any other call joins,
	// and is refused once nothing is left that it could belong to.
	gate   gate.Gate
	mu     sync.Mutex // guards leases
	leases map[*Lease]struct{}
}

// newEngine makes an engine over the servers behind clients, which it has not talked to yet.
func newEngine(clients []redis.UniversalClient, p *policy) *engine {
	e := &engine{
		Group:  node.New(clients, p.Config),
		jitter: rand.Int64N,
		lines:  queue.NewLocal(forWaiter(""), func(why result) result { return forWaiter(why.hint) }),
		leases: map[*Lease]struct{}{},
	}
	e.waits.Init(e.Group)
	e.watchdog.e = e.Group
	return e
}

// keep books a lease, unless the engine is closing. Who closes it and then takes the lock sees every lease that was let in.
func (e *engine) keep(lease *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.gate.Enter() {
		return false
	}
	e.leases[lease] = struct{}{}
	e.lines.Holds(lease.lock.Resource(), blocking{lease})
	return true
}

// pause waits for d, or until somebody tells; it reports false where ctx or the engine has ended.
func (e *engine) pause(ctx context.Context, d time.Duration, told <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-told:
	case <-ctx.Done():
	case <-e.Closing:
	}
	return ctx.Err() == nil && !e.IsClosing()
}

// retire books that a lease is over.
func (e *engine) retire(l *Lease) {
	e.mu.Lock()
	_, kept := e.leases[l]
	delete(e.leases, l)
	e.mu.Unlock()
	if kept {
		e.gate.Leave()
	}
}

// left are the leases that are still held, by key, and the number of calls under way.
func (e *engine) left() ([]*Lease, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := slices.SortedFunc(maps.Keys(e.leases), func(a, b *Lease) int { return strings.Compare(a.lock.Key, b.lock.Key) })
	return left, e.gate.Inside() - len(left)
}
