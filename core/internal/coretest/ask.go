package coretest

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Run evaluates a call that is answered with a text.
func Run(c redis.UniversalClient, call wire.Call) (string, error) { return run(c, call).Text() }

// RunBatch evaluates a call that is answered with a list.
func RunBatch(c redis.UniversalClient, call wire.Call) ([]string, error) {
	return run(c, call).StringSlice()
}

func run(c redis.UniversalClient, call wire.Call) *redis.Cmd {
	ctx := context.Background() // bounded by the client's timeouts
	cmd := c.Do(ctx, call.Args()...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = c.Do(ctx, call.InFull()...)
	}
	return cmd
}

// VoteOf is the vote that a reply is, or an error.
func VoteOf(q wire.Request, text string, err error, decode func(wire.Request, string) (wire.Reply, error)) quorum.Vote {
	var reply wire.Reply
	if err == nil {
		reply, err = decode(q, text)
	}
	switch {
	case err == nil:
		return quorum.Vote{Reply: reply}
	case goredis.Says(err, "READONLY"):
		return quorum.Said(wire.Replica, err)
	}
	return quorum.Said(wire.Failed, err)
}
