package goredis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Pipeline sends commands together, each of which has its error then.
func Pipeline(ctx context.Context, client redis.UniversalClient, cmds []redis.Cmder) {
	pipe := client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, OnceAny{cmd}) // Exec says it
	}
	_, _ = pipe.Exec(ctx)
}

// OnceAny is Once for any command.
type OnceAny struct{ redis.Cmder }

// NoRetry is what go-redis asks.
func (OnceAny) NoRetry() bool { return true }

// NotAnew is a context in which go-redis makes no new connection in place of one that failed.
var NotAnew = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended at once
	cancel()
	return ctx
}()

// Subscribe subscribes c to a channel. The subscriber is there, and to be closed, whatever the error.
func Subscribe(ctx context.Context, c redis.UniversalClient, sharded bool, channel string) (*redis.PubSub, error) {
	if sharded {
		pubsub := c.SSubscribe(ctx)
		return pubsub, pubsub.SSubscribe(ctx, channel)
	}
	pubsub := c.Subscribe(ctx)
	return pubsub, pubsub.Subscribe(ctx, channel)
}

// Once is a command that go-redis must not send again by itself: a retry would spend the node timeout
// on a node that is in trouble, and deliver late.
type Once struct{ *redis.Cmd } // of one pointer, so that it is not allocated

// NoRetry is what go-redis asks.
func (Once) NoRetry() bool { return true }
