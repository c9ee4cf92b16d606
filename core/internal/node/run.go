package node

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// runScript evaluates a call on a node. It blocks for as long as the client's own timeouts allow, even after ctx
// has ended.
func runScript(ctx context.Context, client redis.UniversalClient, call wire.Call) (any, error) {
	cmd := redis.NewCmd(ctx, call.Args()...)
	err := goredis.Do(ctx, client, goredis.Once{Cmd: cmd})

	// The server does not know the script yet: send its source.
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = redis.NewCmd(ctx, call.InFull()...)
		err = goredis.Do(ctx, client, goredis.Once{Cmd: cmd})
	}
	return cmd.Val(), err
}
