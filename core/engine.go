package core

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/slot"
	"github.com/lockkit/lockkit/internal/gate"
)

// An engine is the part that a Locker shares with all Lockers derived from it: nodes, local queue, watchdog.
type engine struct {
	*node.Group
	localQueue      *queue.LocalQueue[refusal]
	board           queue.Board
	jitter          func(n int64) int64 // uniform in [0, n)
	attemptCount    atomic.Uint64       // attempts made so far; it names them
	watchdog        watchdog
	leftovers       leftovers
	contended       contendedKeys
	slots           slot.Memory  // which slots of semaphores this process uses
	closeOwnClients func() error // closes the clients, once; nil: the caller owns them

	// gate counts calls in progress, and leases. An acquisition enters it, and is refused once the Locker is closing.
	// Any other call joins it, and is refused once the gate is closed and no lease or call is left.
	gate gate.Gate
}

// newEngine returns an engine over the servers behind clients. It sends nothing.
func newEngine(clients []redis.UniversalClient, p *policy) *engine {
	behindWaiter := func(why refusal) refusal { return reservedForWaiter(why.hint) }
	e := &engine{
		Group:      node.New(clients, p.Config),
		jitter:     rand.Int64N,
		localQueue: queue.NewLocalQueue(reservedForWaiter(""), behindWaiter),
	}
	e.board.Init(e.Group)
	e.watchdog.e = e.Group
	return e
}
