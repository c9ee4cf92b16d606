package goredis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/faults"
)

// This file has every call of this process into go-redis that reads the reply of a server, and each contains
// panics: go-redis panics on some malformed replies, and no server may end the process. Like an unreadable reply, a
// panic is an error of that one call.

// errPanicked is the error of a call in which go-redis or a hook of the client panicked.
var errPanicked = errors.New("the client panicked on what the server sent, or one of its hooks did")

// contain turns a panic into an error. It must be deferred.
func contain(err *error) {
	if value := recover(); value != nil {
		*err = fmt.Errorf("%w: %v%s", errPanicked, value, culprit())
	}
}

// culprit names the function that panicked, for the text of the error. It must be called by the deferred function.
func culprit() string {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") && frame.Function != "" {
			return " in " + frame.Function
		}
		if !more {
			return ""
		}
	}
}

// Do sends a command.
func Do(ctx context.Context, c redis.UniversalClient, cmd redis.Cmder) (err error) {
	defer contain(&err)
	return clip(c.Process(ctx, cmd))
}

// Pipeline sends commands together, and sets the error of each. The returned error is not about any single command.
func Pipeline(ctx context.Context, c redis.UniversalClient, cmds []redis.Cmder) (err error) {
	defer contain(&err)

	pipe := c.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, OnceAny{cmd}) // Exec returns it
	}
	_, _ = pipe.Exec(ctx) // each command has its error

	for _, cmd := range cmds {
		cmd.SetErr(clip(cmd.Err()))
	}
	return nil
}

// Disconnect closes the idle connections of a client, so that its next requests use new ones.
//
// go-redis has no call for this, but it closes a connection on which a request fails. With a client of go-redis
// itself, a request whose deadline has passed fails before it is sent. Other clients have no WithTimeout, which is
// needed for that. They are sent a script that answers that the server accepts no writes, and close the connection.
func Disconnect(ctx context.Context, c redis.UniversalClient) (err error) {
	defer contain(&err)

	idle := c.PoolStats().IdleConns
	shared, ok := c.(interface {
		WithTimeout(timeout time.Duration) *redis.Client
	})
	if !ok {
		const script = "return redis.error_reply('READONLY the connection is not needed any more')"
		for range idle {
			_ = Do(ctx, c, Once{redis.NewCmd(ctx, "eval", script, 0)})
		}
		return nil
	}

	// The copy shares the pool, but has separate options.
	closing := shared.WithTimeout(time.Nanosecond)
	closing.Options().ContextTimeoutEnabled = true
	for left := idle; left > 0 && closing.PoolStats().IdleConns > 0; left-- {
		_ = Do(expired{ctx}, closing, Once{redis.NewCmd(ctx, "ping")})
	}
	return nil
}

// An expired is a context whose deadline has passed, although it is not done: go-redis would not use a connection
// for a context that is done.
type expired struct{ context.Context }

func (expired) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// Once is a command that go-redis must not retry: a retry would spend the node timeout on a node that is in
// trouble, and deliver late. It has the size of a pointer, so it needs no allocation as an interface value.
type Once struct{ *redis.Cmd }

// NoRetry implements an optional interface of go-redis.
func (Once) NoRetry() bool { return true }

// OnceAny is Once for any command.
type OnceAny struct{ redis.Cmder }

// NoRetry implements an optional interface of go-redis.
func (OnceAny) NoRetry() bool { return true }

// A Cluster is the client of a Redis Cluster.
type Cluster struct{ client clusterClient }

// A clusterClient is a redis.ClusterClient, or a type that embeds one.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// ClusterOf returns c as the client of a Redis Cluster, or nil if it is not one.
func ClusterOf(c redis.UniversalClient) *Cluster {
	if client, ok := c.(clusterClient); ok {
		return &Cluster{client}
	}
	return nil
}

// MasterFor returns the client of the server that has the keys under the hash tag of a name.
func (c *Cluster) MasterFor(ctx context.Context, name string) (master *redis.Client, err error) {
	defer contain(&err)
	master, err = c.client.MasterForKey(ctx, name)
	return master, clip(err)
}

// Reload makes the client reload the topology, on a goroutine of the client.
func (c *Cluster) Reload() {
	c.client.ReloadState(context.Background()) //nolint:forbidigo // it waits for nothing
}

// canceled is a context with which go-redis does not replace a failed connection.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended at once
	cancel()
	return ctx
}()

// A subscription is a connection that has subscribed to one channel. It is over when the connection fails, or when
// the server ends the subscription.
type subscription struct {
	pubsub  *redis.PubSub
	kind    string // of the server's confirmation
	channel string
}

// errEnded is the error of a subscription that the server has ended: another server has its channel now, or its
// user lost the right to it.
var errEnded = errors.New("the server has ended the subscription")

// Subscribe subscribes to a channel. If the subscription is not nil, the caller must close it, even after an error.
func Subscribe(
	ctx context.Context, c redis.UniversalClient, sharded bool, channel string,
) (s *subscription, err error) {
	defer contain(&err)
	if sharded {
		s = &subscription{c.SSubscribe(ctx), "ssubscribe", channel}
		return s, clip(s.pubsub.SSubscribe(ctx, channel))
	}
	s = &subscription{c.Subscribe(ctx), "subscribe", channel}
	return s, clip(s.pubsub.Subscribe(ctx, channel))
}

// Receive waits for the server. It returns a published message, or reports that the server confirmed the
// subscription. It returns neither for the answer to a Ping. The timeout must be positive.
func (s *subscription) Receive(timeout time.Duration) (confirmed bool, published *redis.Message, err error) {
	defer contain(&err)

	got, err := s.pubsub.ReceiveTimeout(canceled, timeout)
	if err != nil {
		return false, nil, clip(err)
	}

	switch got := got.(type) {
	case *redis.Subscription:
		// The server may also push the end of a subscription, such as sunsubscribe when a slot has moved.
		if got.Kind != s.kind || got.Channel != s.channel {
			return false, nil, fmt.Errorf("%w: %s", errEnded, faults.Clip(got.Kind))
		}
		return true, nil, nil
	case *redis.Message:
		return false, got, nil
	}
	return false, nil, nil
}

// Ping asks the server for a sign of life; Receive gets the answer.
func (s *subscription) Ping() (err error) {
	defer contain(&err)
	return clip(s.pubsub.Ping(canceled))
}

// Close ends the subscription. It does nothing if s is nil.
func (s *subscription) Close() {
	if s != nil {
		_ = s.pubsub.Close()
	}
}
