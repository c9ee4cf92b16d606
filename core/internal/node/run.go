package node

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// run evaluates a call on a node's client. It may block for as long as the client's own timeouts allow, whatever ctx says.
func run(ctx context.Context, client redis.UniversalClient, call wire.Call) (any, error) {
	cmd := redis.NewCmd(ctx, call.Args()...)
	err := goredis.Do(ctx, client, goredis.Once{Cmd: cmd})
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewCmd(ctx, call.InFull()...)
		err = goredis.Do(ctx, client, goredis.Once{Cmd: cmd})
	}
	return cmd.Val(), err
}
