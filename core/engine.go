package core

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

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
	gate gate.Gate
}

// newEngine makes an engine over the servers behind clients, which it has not talked to yet.
func newEngine(clients []redis.UniversalClient, p *policy) *engine {
	e := &engine{
		Group:  node.New(clients, p.Config),
		jitter: rand.Int64N,
		lines:  queue.NewLocal(forWaiter(""), func(why result) result { return forWaiter(why.hint) }),
	}
	e.waits.Init(e.Group)
	e.watchdog.e = e.Group
	return e
}

// retire books that a lease is over.
func (e *engine) retire(lease *Lease) {
	e.watchdog.remove(lease)
	e.gate.Leave()
}

// named is how many leases Close names of those that it waits for.
const named = 10

// left are the leases that are still held, by key, and the names of the first, and the number of calls under way.
func (e *engine) left(name func(*Lease) string) (left []*Lease, names []string, calls int) {
	e.watchdog.mu.Lock()
	defer e.watchdog.mu.Unlock()
	left = slices.SortedFunc(slices.Values(e.watchdog.due), func(a, b *Lease) int { return strings.Compare(a.lock.Key, b.lock.Key) })
	for _, lease := range left[:min(len(left), named)] {
		names = append(names, name(lease))
	}
	return left, names, e.gate.Inside() - len(left)
}
