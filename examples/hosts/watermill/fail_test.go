package watermill

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A message whose handler fails is handled at its redelivery. With watermill's Deduplicator it is lost: it is acknowledged,
// although no call of the handler has succeeded.
func TestWatermillHandlesFailedMessageAgain(t *testing.T) {
	t.Parallel()
	locker := locktest.New(t).Locker
	repository, err := middleware.NewMapExpiringKeyRepository(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	deduplicator := &middleware.Deduplicator{Repository: repository}

	for name, c := range map[string]struct {
		middleware       message.HandlerMiddleware
		calls, successes int32
	}{
		"once":         {oncePerMessage(locker), 2, 1},
		"deduplicator": {deduplicator.Middleware, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls, successes atomic.Int32
			s := newStream(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- route(ctx, s.addr, "one", func(msg *message.Message) error {
					if calls.Add(1) == 1 {
						return errors.New("the database is away")
					}
					successes.Add(1)
					return nil
				}, c.middleware)
			}()
			s.publish("m1")
			s.awaitSettled()
			cancel()
			err := <-ended

			if err != nil || calls.Load() != c.calls || successes.Load() != c.successes {
				t.Errorf("%d calls, of which %d have succeeded, error %v", calls.Load(), successes.Load(), err)
			}
		})
	}
}

// Two handlers of one message both run, whose records are apart. If a middleware outside tries a handler again, the message
// has a context that lives, so one delivery is enough.
func TestWatermillTwoHandlersAndRetry(t *testing.T) {
	t.Parallel()
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err != nil {
				t.Errorf("a delivery has failed: %v", err)
			}
			return produced, err
		}
	}
	router.AddMiddleware(failed, middleware.Retry{MaxRetries: 1}.Middleware, oncePerMessage(locktest.New(t).Locker))

	channel := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	succeeded := make(chan string, 2)
	for _, name := range []string{"ship", "bill"} {
		var calls atomic.Int32
		router.AddConsumerHandler(name, topic, channel, func(msg *message.Message) error {
			if calls.Add(1) == 1 {
				return errors.New("the database is away")
			}
			err := msg.Context().Err()
			if err == nil {
				succeeded <- name
			}
			return err
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	err = channel.Publish(topic, message.NewMessage("m1", []byte("an order")))
	if err != nil {
		t.Fatal(err)
	}

	names := []string{testutil.Receive(t, succeeded), testutil.Receive(t, succeeded)}
	if names[0] == names[1] {
		t.Errorf("twice: %s", names[0])
	}
	err = router.Close()
	if err != nil {
		t.Fatal(err)
	}
	err = testutil.Receive(t, ended)
	if err != nil {
		t.Fatal(err)
	}
}
