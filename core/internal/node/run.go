package node

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// run evaluates a call on a node's client. It may block for as long as the client's own timeouts allow, whatever ctx says.
func run(ctx context.Context, client redis.UniversalClient, call wire.Call) (any, error) {
	cmd := redis.NewCmd(ctx, call.Args()...)
	err := client.Process(ctx, goredis.Once{Cmd: cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewCmd(ctx, call.InFull()...)
		err = client.Process(ctx, goredis.Once{Cmd: cmd})
	}
	return cmd.Val(), err
}

// A nodeContext carries the values of the caller's context, for the hooks of the client, and the deadline of
// the round, for clients that heed it. It is never cancelled: a request whose fate is unknown costs more
// than one that is answered late.
type nodeContext struct {
	context.Context // whose values
	deadline        time.Time
}

func (c *nodeContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *nodeContext) Done() <-chan struct{}       { return nil }
func (c *nodeContext) Err() error                  { return nil }
