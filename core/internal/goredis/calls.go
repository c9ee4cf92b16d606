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

// Every call of this process into go-redis that reads what a server sends is in this file, and contains a panic: go-redis
// panics on some malformed replies, and nothing that a server sends may end the process. A panic is an error of that one
// call, as a reply is that cannot be read.

// errPanicked is the error of a call in which go-redis panicked, or a hook of the client.
var errPanicked = errors.New("the client panicked on what the server sent, or one of its hooks did")

// contain makes a panic of the function that defers it the error of its call.
func contain(err *error) {
	if what := recover(); what != nil {
		*err = fmt.Errorf("%w: %v%s", errPanicked, what, culprit())
	}
}

// culprit names the function that panicked, for the text of the error. It is called by what a deferred function calls.
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
	return quoted(c.Process(ctx, cmd))
}

// Pipeline sends commands together, each of which has its error then. The error is that of none in particular.
func Pipeline(ctx context.Context, c redis.UniversalClient, cmds []redis.Cmder) (err error) {
	defer contain(&err)
	pipe := c.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, OnceAny{cmd}) // Exec says it
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	for _, cmd := range cmds {
		cmd.SetErr(quoted(cmd.Err()))
	}
	return nil
}

// Disconnect closes the connections of a client that are idle, so that what it asks next goes over a new one. go-redis has
// no call for it, but closes a connection that fails. A request of which the deadline has passed fails before it is sent. A
// client that is not one of go-redis itself is not told of such a deadline, and closes a connection on which a script answers
// that the server takes no writes.
func Disconnect(ctx context.Context, c redis.UniversalClient) (err error) {
	defer contain(&err)
	idle := c.PoolStats().IdleConns
	shared, is := c.(interface {
		WithTimeout(timeout time.Duration) *redis.Client
	})
	if !is {
		const script = "return redis.error_reply('READONLY the connection is not needed any more')"
		for range idle {
			_ = Do(ctx, c, Once{redis.NewCmd(ctx, "eval", script, 0)})
		}
		return nil
	}

	closing := shared.WithTimeout(time.Nanosecond) // it has the same pool, and options of its own
	closing.Options().ContextTimeoutEnabled = true
	for left := idle; left > 0 && closing.PoolStats().IdleConns > 0; left-- {
		_ = Do(expired{ctx}, closing, Once{redis.NewCmd(ctx, "ping")})
	}
	return nil
}

// An expired is a context with a deadline that has passed, and that nobody is told of.
type expired struct{ context.Context }

func (expired) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// Once is a command that go-redis must not send again by itself: a retry would spend the node timeout
// on a node that is in trouble, and deliver late.
type Once struct{ *redis.Cmd } // of one pointer, so that it is not allocated

// NoRetry is what go-redis asks.
func (Once) NoRetry() bool { return true }

// OnceAny is Once for any command.
type OnceAny struct{ redis.Cmder }

// NoRetry is what go-redis asks.
func (OnceAny) NoRetry() bool { return true }

// A Cluster is the client of a Redis Cluster.
type Cluster struct{ client cluster }

// cluster is a redis.ClusterClient, or what embeds one.
type cluster interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// ClusterOf returns the client of a Redis Cluster that c is; nil if it is none.
func ClusterOf(c redis.UniversalClient) *Cluster {
	if client, is := c.(cluster); is {
		return &Cluster{client}
	}
	return nil
}

// MasterFor returns the client of the server that has the keys under the hash tag of a name.
func (c *Cluster) MasterFor(ctx context.Context, name string) (master *redis.Client, err error) {
	defer contain(&err)
	master, err = c.client.MasterForKey(ctx, name)
	return master, quoted(err)
}

// Reload has the client ask for the topology anew, on a goroutine of its own.
func (c *Cluster) Reload() { c.client.ReloadState(context.Background()) } //nolint:forbidigo // it waits for nothing

// notAnew is a context in which go-redis makes no new connection in place of one that failed.
var notAnew = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // ended at once
	cancel()
	return ctx
}()

// A subscription is one connection that has subscribed to one channel. When the connection fails, or the server takes the
// subscription away, it is over.
type subscription struct {
	pubsub  *redis.PubSub
	kind    string // how the server confirms it
	channel string
}

// errEnded is the error of a subscription that the server has ended by itself: another server has its channel, or its
// user lost the right to it.
var errEnded = errors.New("the server has ended the subscription")

// Subscribe subscribes to a channel. A subscription that is not nil is to be closed, whatever the error.
func Subscribe(ctx context.Context, c redis.UniversalClient, sharded bool, channel string) (s *subscription, err error) {
	defer contain(&err)
	if sharded {
		s = &subscription{c.SSubscribe(ctx), "ssubscribe", channel}
		return s, quoted(s.pubsub.SSubscribe(ctx, channel))
	}
	s = &subscription{c.Subscribe(ctx), "subscribe", channel}
	return s, quoted(s.pubsub.Subscribe(ctx, channel))
}

// Receive waits for what the server sends next: whether that confirms the subscription, or what was published; neither for
// the answer to a Ping. A timeout is positive.
func (s *subscription) Receive(timeout time.Duration) (confirmed bool, published *redis.Message, err error) {
	defer contain(&err)
	got, err := s.pubsub.ReceiveTimeout(notAnew, timeout)
	if err != nil {
		return false, nil, quoted(err)
	}
	switch got := got.(type) {
	case *redis.Subscription:
		if got.Kind != s.kind || got.Channel != s.channel {
			return false, nil, fmt.Errorf("%w: %s", errEnded, faults.Clip(got.Kind))
		}
		return true, nil, nil
	case *redis.Message:
		return false, got, nil
	}
	return false, nil, nil
}

// Ping asks the server for a sign of life, which Receive gets.
func (s *subscription) Ping() (err error) {
	defer contain(&err)
	return quoted(s.pubsub.Ping(notAnew))
}

// Close ends the subscription. A nil one was not made.
func (s *subscription) Close() {
	if s != nil {
		_ = s.pubsub.Close()
	}
}
