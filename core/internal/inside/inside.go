// Package inside gives core/admin and lockctl access to the nodes of a Locker. Services do not need it. Package core
// sets the variables of this package when it is loaded. Some of them use types of core, which this package cannot
// import. The comments name these types.
package inside

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
)

var (
	// Enter begins a call on a *core.Locker, about a key unless key is nil. It returns an error if the Locker is
	// closed. Otherwise the caller must call leave at the end of the call.
	Enter func(ctx context.Context, locker any, key *string) (g *node.Group, leave func(), err error)

	// Config returns the configuration of these nodes by a []core.Option.
	Config func(nodes []redis.UniversalClient, options any) (*node.Config, error)

	// Dial makes the clients that core.Open would make with a []core.Option.
	Dial func(urls []string, options any) ([]redis.UniversalClient, error)

	// ContextError returns the reason why ctx has ended, as core's errors contain it.
	ContextError func(ctx context.Context) error

	// Fail sets the error of a *core.OpError.
	Fail func(failed any, err error)

	// Replies returns the votes of all nodes as a []core.NodeReply.
	Replies func(g *node.Group, t *quorum.Tally) any

	// KeyHash returns the hash that stands for a key in log lines.
	KeyHash func(key string) string

	// AllowUnfit is a core.Option. With it, New succeeds even if nodes are unfit. No node is touched, because that would
	// write guard records and begin quarantines.
	AllowUnfit any

	// Stored is a func(text string, clock time.Time) core.KeyOnNode. It parses the first KiB of the value that a node
	// stores for a key, by the node's clock. The result of a completion record is left out.
	Stored any

	// Settled is a func(nodes []core.KeyOnNode) core.KeyState. It returns the state of a key on which a quorum agrees.
	Settled any
)
