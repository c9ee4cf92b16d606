package queue

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
)

// A subscription listens to what a node publishes for the calls of a Locker that wait, on a connection of its own, from when the first of
// them comes until none is left and nothing has been heard for a while, or the Locker is closed. In a Cluster there is
// one for each guard bucket, whose channel is where the bucket's keys are.
type subscription struct {
	board  *Board
	n      *node.Node
	bucket int
}

const (
	// A connection that is silent for so long is closed where nobody waits. Else it is tried, and given up if that is
	// not answered.
	SilentFor = 10 * time.Second
	// After a failure, so long until the next subscription.
	RelistenMin, RelistenMax = 50 * time.Millisecond, time.Second
)

var (
	errSilent   = errors.New("no answer on the connection of the subscription")
	errNeedless = errors.New("nobody waits")
)

// listen subscribes, and again after each failure.
func (e *subscription) listen() {
	for pause := time.Duration(0); pause == 0 || e.sleep(pause); {
		began := e.board.g.Clock.Now()
		err := e.session()
		switch {
		case errors.Is(err, errNeedless):
			return
		case goredis.Denied(err):
			pause = node.RecheckEvery
			e.board.g.Doubt(e.n)
		case e.board.g.Clock.Now().Since(began) > RelistenMax:
			pause = RelistenMin
		default:
			pause = min(max(2*pause, RelistenMin), RelistenMax)
		}
	}
}

// sleep reports false when nobody is to listen any more.
func (e *subscription) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.board.ctx.Done():
		return false
	}
}

// session is one subscription, until it fails.
func (e *subscription) session() error {
	ctx, cancel := context.WithCancel(e.board.ctx)
	channel := e.board.Channels[e.bucket]
	pubsub, err := goredis.Subscribe(ctx, e.n.Client, channel.Sharded, channel.Name)
	if err != nil {
		cancel()
		pubsub.Close()
		return err
	}
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() { // not before: Close would wait for the connection to be made
		pubsub.Close()
		close(closed)
	})
	defer func() {
		cancel()
		<-closed
	}()
	pinged := true // the subscription is to be confirmed
	for {
		message, err := pubsub.ReceiveTimeout(goredis.NotAnew, SilentFor)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout() && !pinged:
			if e.board.dismiss(e) {
				return errNeedless
			}
			if err := pubsub.Ping(goredis.NotAnew); err != nil {
				return err
			}
			pinged = true
			continue
		case err != nil && pinged && errors.As(err, &late) && late.Timeout():
			return errSilent
		case err != nil:
			return err
		}
		pinged = false
		switch message := message.(type) {
		case *redis.Subscription:
			e.board.All()
		case *redis.Message:
			e.board.Hear(e.n.Index, message.Payload)
		}
	}
}
