package coretest

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Ask sends requests in one command, and returns their votes.
func Ask(
	c redis.UniversalClient,
	h *wire.Preamble,
	memory string,
	wall time.Time,
	requests ...wire.Request,
) ([]quorum.Vote, error) {
	return AskAs(c, h, memory, wall, "", requests...)
}

// AskAs does the same as Ask, and puts the Lua code before at the beginning of the script.
func AskAs(
	c redis.UniversalClient,
	h *wire.Preamble,
	memory string,
	wall time.Time,
	before string,
	requests ...wire.Request,
) ([]quorum.Vote, error) {
	ctx := context.Background() // bounded by the client's timeouts
	call := h.Encode(len(requests), func(i int) wire.Request { return requests[i] }, memory, wall)

	args := call.Args()
	if before != "" {
		args = call.InFull()
		args[1] = before + args[1].(string)
	}

	cmd := c.Do(ctx, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		cmd = c.Do(ctx, call.InFull()...)
	}
	if cmd.Err() != nil {
		return nil, cmd.Err()
	}

	answers, err := call.Answers(cmd.Val())
	if err != nil {
		return nil, err
	}

	votes := make([]quorum.Vote, len(requests))
	for i, q := range requests {
		v, err := answers.Next(q)
		votes[i] = VoteOf(v, err)
	}
	return votes, nil
}

// VoteOf returns the vote for a reply, or for an error of a client.
func VoteOf(v wire.Reply, err error) quorum.Vote {
	switch {
	case err == nil:
		return quorum.Vote{Reply: v}
	case goredis.HasReplyPrefix(err, "READONLY"):
		return quorum.NewVote(wire.Replica, err)
	}
	return quorum.NewVote(wire.Failed, err)
}
