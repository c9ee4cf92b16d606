package core

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/internal/gate"
)

// An engine is what all Lockers derived from one another share: nodes, local queue, watchdog.
type engine struct {
	*node.Group
	localQueue      *queue.Local[refusal]
	board           queue.Board
	jitter          func(n int64) int64 // uniform in [0, n)
	attemptCount    atomic.Uint64       // made so far, to name them
	watchdog        watchdog
	closeOwnClients func() error // closes the clients, once; nil = they are the caller's

	// Calls under way, and leases. What acquires enters, and is refused once the engine is closing; any other call joins,
	// and is refused once nothing is left that it could belong to.
	gate gate.Gate
}

// newEngine makes an engine over the servers behind clients, which it has not talked to yet.
func newEngine(clients []redis.UniversalClient, p *policy) *engine {
	behindWaiter := func(why refusal) refusal { return reservedForWaiter(why.hint) }
	e := &engine{
		Group:      node.New(clients, p.Config),
		jitter:     rand.Int64N,
		localQueue: queue.NewLocal(reservedForWaiter(""), behindWaiter),
	}
	e.board.Init(e.Group)
	e.watchdog.e = e.Group
	return e
}
