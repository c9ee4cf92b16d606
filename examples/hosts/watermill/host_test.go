package watermill

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/hosts/internal/replica"
	"github.com/lockkit/lockkit/testutil"
)

// The environment of a process.
const (
	streamAddr = "HOST_STREAM" // of the Redis with the messages
	lockless   = "HOST_LOCKLESS"
)

// What a process says, followed by the UUID of the message.
const (
	began        = "began: "
	lost         = "lost: "
	acknowledged = "acknowledged: "
)

const (
	topic = "orders"
	group = "shop"
)

func TestMain(m *testing.M) { replica.Main(m, work) }

// work is a process with a router. Its handler ends when the test tells it, or with the context of the message.
func work(self *replica.Self) error {
	told := make(chan struct{})
	handler := func(msg *message.Message) error {
		self.Say(began + msg.UUID)
		select {
		case <-told:
			return nil
		case <-msg.Context().Done():
			if errors.Is(context.Cause(msg.Context()), core.ErrLost) {
				self.Say(lost + msg.UUID)
			}
			return context.Cause(msg.Context())
		}
	}
	sayAcknowledged := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err == nil {
				self.Say(acknowledged + msg.UUID)
			}
			return produced, err
		}
	}
	middlewares := []message.HandlerMiddleware{sayAcknowledged, oncePerMessage(self.Locker)}
	if os.Getenv(lockless) != "" {
		middlewares = middlewares[:1]
	}

	ended := make(chan error, 1)
	go func() {
		ended <- route(context.Background(), os.Getenv(streamAddr), self.Name, handler, middlewares...)
	}()
	go func() {
		self.Hear()
		close(told)
		self.Hear()
	}()
	return <-ended
}

// route runs a router with a handler until ctx ends. Messages that another consumer has not acknowledged for a second are
// delivered to this one.
func route(ctx context.Context, addr, consumer string, handler message.NoPublishHandlerFunc, middlewares ...message.HandlerMiddleware) error {
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:                    redis.NewClient(&redis.Options{Addr: addr}),
		Consumer:                  consumer,
		ConsumerGroup:             group,
		NackResendSleep:           100 * time.Millisecond,
		ClaimInterval:             time.Second,
		MaxIdleTime:               time.Second,
		ShouldClaimPendingMessage: func(pending redis.XPendingExt) bool { return pending.Consumer != consumer },
	}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return err
	}
	router.AddMiddleware(middlewares...)
	router.AddConsumerHandler("ship", topic, subscriber, handler)
	return router.Run(ctx)
}

// A stream is a Redis with messages, and the nodes for locks.
type stream struct {
	t         *testing.T
	addr      string
	client    redis.UniversalClient
	publisher *redisstream.Publisher
	nodes     *replica.Nodes
}

func newStream(t *testing.T, nodes *replica.Nodes) *stream {
	t.Helper()
	server := testutil.NewServers(t, 1)[0]
	s := &stream{t: t, addr: server.Addr(), client: server.Client(), nodes: nodes}
	var err error
	s.publisher, err = redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a process with a router.
func (s *stream) start(name string, env ...string) *replica.Replica {
	s.t.Helper()
	return s.nodes.Start(name, append(env, streamAddr+"="+s.addr)...)
}

// publish publishes a message of this UUID.
func (s *stream) publish(uuid string) {
	s.t.Helper()
	err := s.publisher.Publish(topic, message.NewMessage(uuid, []byte("an order")))
	if err != nil {
		s.t.Fatal(err)
	}
}

// awaitSettled waits until all messages have been delivered and acknowledged.
func (s *stream) awaitSettled() {
	s.t.Helper()
	testutil.Await(s.t, "all messages are acknowledged", func() bool {
		groups, err := s.client.XInfoGroups(s.t.Context(), topic).Result()
		if err != nil || len(groups) == 0 || groups[0].Pending > 0 {
			return false
		}
		newest, err := s.client.XRevRangeN(s.t.Context(), topic, "+", "-", 1).Result()
		return err == nil && len(newest) == 1 && newest[0].ID == groups[0].LastDeliveredID
	})
}

// A slow handler's message is delivered to another process, which waits, and acknowledges it without a call of its handler:
// that would not end, as it is not told to.
func TestWatermillRunsHandlerOnce(t *testing.T) {
	t.Parallel()
	s := newStream(t, replica.StartNodes(t, replica.Long))
	one := s.start("one")
	s.publish("m1")
	one.Await(began + "m1")
	other := s.start("other")
	other.Await(replica.Held + core.Key("message", "ship", "m1"))

	one.Tell("go on")
	one.Await(acknowledged + "m1")
	other.Await(acknowledged + "m1")
	s.awaitSettled()
}

// What the lock is for: without it, the message of a slow handler is handled by two processes at a time.
func TestWatermillWithoutLockRunsTwice(t *testing.T) {
	t.Parallel()
	s := newStream(t, replica.StartNodes(t, replica.Long))
	one := s.start("one", lockless+"=yes")
	s.publish("m1")
	one.Await(began + "m1")
	s.start("other", lockless+"=yes").Await(began + "m1")
}

// The process that handles a message is killed. Another one handles it after the TTL. A third one, which is not told to end
// its handler, acknowledges the message when it is published again.
func TestWatermillHolderIsKilled(t *testing.T) {
	t.Parallel()
	s := newStream(t, replica.StartNodes(t, replica.Usual))
	one := s.start("one")
	s.publish("m1")
	one.Await(began + "m1")
	one.Kill()

	other := s.start("other")
	other.Await(began + "m1")
	other.Tell("go on")
	other.Await(acknowledged + "m1")
	s.awaitSettled()
	other.Kill()

	third := s.start("third")
	s.publish("m1")
	third.Await(acknowledged + "m1")
	s.awaitSettled()
}

// A process is cut off from the nodes for locks. The context of its message ends, the message is not acknowledged, and another
// process handles it. Once the first one is back, it acknowledges the message without a call of its handler, which is not told
// to end.
func TestWatermillHolderLosesItsLease(t *testing.T) {
	t.Parallel()
	s := newStream(t, replica.StartNodes(t, replica.Usual))
	one := s.start("one")
	s.publish("m1")
	one.Await(began + "m1")
	one.CutOff()
	one.Await(lost + "m1")

	other := s.start("other")
	other.Await(began + "m1")
	other.Tell("go on")
	other.Await(acknowledged + "m1")
	one.Reconnect()
	one.Await(acknowledged + "m1")
	s.awaitSettled()
}
