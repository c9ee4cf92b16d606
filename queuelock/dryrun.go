package queuelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// dryRun returns an error if the ticks of an entry could not be enqueued, each once. asynq does not show the options
// that asynq.NewTask was given, so asynq's own client enqueues a tick here, on a Redis that does nothing.
func dryRun(task *asynq.Task, opts []asynq.Option) error {
	var client dryRunRedis
	_, err := asynq.NewClientFromRedisClient(&client).Enqueue(task, append(slices.Clip(opts), ID("tick"))...)
	if err != nil {
		return fmt.Errorf("asynq does not enqueue such a task: %w", err)
	}

	// asynq has one key for a unique lock, and another for a group.
	keys := strings.Join(client.keys, " ")
	switch {
	case strings.Contains(keys, "}:unique:"):
		return errors.New("asynq.NewTask was given asynq.Unique: a tick has an id that makes it unique")
	case strings.Contains(keys, "}:g:"):
		return errors.New("asynq.NewTask was given asynq.Group: " +
			"asynq forgets the id of a task that it aggregates, so a tick could run twice")
	}
	return nil
}

// A dryRunRedis has the commands by which asynq enqueues a task, and sends nothing.
type dryRunRedis struct {
	redis.UniversalClient
	keys []string // of the script that enqueues
}

func (r *dryRunRedis) SAdd(context.Context, string, ...any) *redis.IntCmd {
	return redis.NewIntResult(1, nil)
}

func (r *dryRunRedis) EvalSha(_ context.Context, _ string, keys []string, _ ...any) *redis.Cmd {
	r.keys = keys
	return redis.NewCmdResult(int64(1), nil)
}
