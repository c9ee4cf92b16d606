package core

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/gate"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// An engine is what all Lockers derived from one another share: nodes, local queue, watchdog.
type engine struct {
	ensemble
	lines    lines
	watchdog watchdog
	hangUp   func() error // closes the clients, once; nil = they are the caller's

	// Calls under way, and leases. What acquires enters, and is refused once the engine is closing; any other call joins,
	// and is refused once nothing is left that it could belong to.
	gate   gate.Gate
	leases map[*Lease]struct{}
}

// newEngine makes an engine over the servers behind clients, which it has not talked to yet.
func newEngine(clients []redis.UniversalClient, p *policy) *engine {
	e := &engine{
		ensemble: ensemble{clock: clock.New(), jitter: rand.Int64N, pace: minPace, closing: make(chan struct{})},
		lines:    lines{m: map[string]line{}},
		leases:   map[*Lease]struct{}{},
	}
	e.quiet = e.gate.Empty()
	e.keys = keysOver(clients, p)
	buckets := e.keys.Buckets()
	for i, c := range clients {
		n := newNode(i, goredis.Bounded(c, p.nodeTimeout))
		e.nodes = append(e.nodes, n)
		n.memories = make([]atomic.Pointer[string], buckets)
		for range buckets {
			n.lanes = append(n.lanes, &lane{e: &e.ensemble, n: n, idle: make(chan *flight)})
		}
	}
	e.head.Store(wire.NewHead(p.window, p.maxTTL, p.lag))
	e.waits.init(&e.ensemble, buckets)
	e.watchdog.e = e
	e.health.e, e.health.p, e.health.asked = &e.ensemble, p, make([]clock.AtomicInstant, buckets)
	e.unheard = resend{e: &e.ensemble, pending: map[*time.Timer]struct{}{}}
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
	e.lines.holds(lease.turn(), lease)
	return true
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

// keysOver are the keys on nodes behind clients: with a Redis Cluster among them, spread over its shards.
func keysOver(clients []redis.UniversalClient, p *policy) *wire.Keyspace {
	if slices.ContainsFunc(clients, func(c redis.UniversalClient) bool { return goredis.ClusterOf(c) != nil }) {
		return wire.NewKeyspace(p.prefix, wire.Buckets, p.guarded)
	}
	return wire.NewKeyspace(p.prefix, 1, p.guarded)
}
