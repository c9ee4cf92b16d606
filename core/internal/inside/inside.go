// Package inside is how core/admin and lockctl get at what a Locker runs on, which no service needs. Package core sets its
// variables when it is loaded. Some are functions of types of core, which this package cannot name.
package inside

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
)

var (
	// Enter admits a call to a *core.Locker that is not closed, about a key unless that is nil. The caller has to call
	// leave.
	Enter func(ctx context.Context, locker any, key *string) (g *node.Group, leave func(), err error)

	// Config returns what a []core.Option says of these nodes.
	Config func(nodes []redis.UniversalClient, options any) (*node.Config, error)

	// Dial makes the clients that core.Open makes, with a []core.Option.
	Dial func(urls []string, options any) ([]redis.UniversalClient, error)

	// EndOf returns why ctx has ended, as core's errors have it.
	EndOf func(ctx context.Context) error

	// Fail notes in a *core.OpError why its operation failed.
	Fail func(failed any, err error)

	// Replies returns a []core.NodeReply: the votes of all nodes.
	Replies func(g *node.Group, t *quorum.Tally) any

	// KeyHash returns what stands for a key in log lines.
	KeyHash func(key string) string

	// Looking is a core.Option. With it New succeeds although nodes are unfit, and no node is touched, which would write
	// guard records and begin quarantines.
	Looking any

	// Stored is a func(text string, clock time.Time) core.KeyOnNode: what a node has of a key, given the first KiB of what
	// it stores and its clock. A result of a record is not in it.
	Stored any

	// Settled is a func(nodes []core.KeyOnNode) core.KeyState: what a quorum of nodes agrees on.
	Settled any
)
