package queue

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
)

const (
	// After this long without a message, a subscription is closed if no call waits. Otherwise it is pinged, and
	// dropped if the ping is not answered within the same time.
	MaxSilence = 10 * time.Second

	// The pause between a subscription that failed and the next one. It grows from the first to the second.
	ResubscribeMin, ResubscribeMax = 50 * time.Millisecond, time.Second
)

var (
	errSilent = errors.New("no answer on the connection of the subscription")
	errUnused = errors.New("nobody waits")
)

// A source is what a subscription subscribes to: the channel of a bucket, on one node.
type source struct {
	node   *node.Node
	bucket *node.Bucket
}

// subscribe keeps a subscription to s until it is not needed any more, or the Locker is closed.
func (b *Board) subscribe(s source) {
	pause := time.Duration(0)
	for {
		began := b.g.Clock.Now()
		err := b.receive(s)
		s.node.ReloadIfMoved(b.g.Clock.Now(), err)
		if errors.Is(err, errUnused) {
			return
		}
		dismissed := b.dismiss(s)
		if dismissed {
			return
		}

		switch {
		case goredis.IsDenied(err):
			pause = node.RecheckEvery
			b.g.Recheck(s.node)
		case b.g.Clock.Now().Since(began) > ResubscribeMax:
			// The subscription worked for a while.
			pause = ResubscribeMin
		default:
			pause = min(max(2*pause, ResubscribeMin), ResubscribeMax)
		}

		open := b.g.Pause(b.g.Closing, pause, nil)
		if !open {
			return
		}
	}
}

// dismiss gives up the subscription to s if no call waits, and reports whether it did. The next waiter begins another.
func (b *Board) dismiss(s source) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	if len(b.waiters) > 0 {
		return false
	}
	delete(b.subscribed, s)
	return true
}

// receive subscribes to s and delivers its messages. It returns when the subscription fails, the server ends it, or
// the node has been found at another address; and with errUnused when dismiss gave it up.
func (b *Board) receive(s source) error {
	ctx, cancel := context.WithCancel(s.node.Returned())

	// To reach the server may take the client a node timeout, not longer.
	subscribing, stop := context.WithTimeout(ctx, b.g.Conf.Timeout)
	subscription, err := goredis.Subscribe(subscribing, s.node.Client, s.bucket.Channel.Sharded, s.bucket.Channel.Name)
	stop()

	// The end of ctx closes the subscription. This is arranged after Subscribe, because Close waits until the
	// connection is made.
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		subscription.Close()
		close(closed)
	})
	defer func() {
		cancel()
		<-closed
	}()
	if err != nil {
		return err
	}

	pinged := true // the server owes an answer: first, the confirmation of the subscription
	for {
		confirmed, published, err := subscription.Receive(MaxSilence)
		silent := isTimeout(err)
		if silent && pinged {
			return errSilent
		}
		if silent {
			dismissed := b.dismiss(s)
			if dismissed {
				return errUnused
			}
			err = subscription.Ping()
		}
		if err != nil {
			return err
		}
		pinged = silent

		switch {
		case confirmed:
			b.WakeAll()
		case published != nil:
			b.Deliver(s.node.Index, published.Payload)
		}
	}
}

func isTimeout(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) && failed.Timeout()
}
