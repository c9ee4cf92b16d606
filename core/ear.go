package core

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
)

// An ear listens to what a node publishes for the waits of a Locker, on a connection of its own, from when the first of
// them comes until none is left and nothing has been heard for a while, or the Locker is closed. In a Cluster there is
// one for each guard bucket, whose channel is where the bucket's keys are.
type ear struct {
	s      *waits
	n      *node
	bucket int
}

const (
	// A connection that is silent for so long is closed where nobody waits. Else it is tried, and given up if that is
	// not answered.
	silentFor = 10 * time.Second
	// After a failure, so long until the next subscription.
	relistenMin, relistenMax = 50 * time.Millisecond, time.Second
)

var (
	errSilent   = errors.New("no answer on the connection of the subscription")
	errNeedless = errors.New("nobody waits")
)

// listen subscribes, and again after each failure.
func (e *ear) listen() {
	for pause := time.Duration(0); pause == 0 || e.sleep(pause); {
		began := e.s.e.clock.Now()
		err := e.session()
		switch {
		case errors.Is(err, errNeedless):
			return
		case goredis.Denied(err):
			pause = recheckEvery
			e.s.e.health.doubt(e.n)
		case e.s.e.clock.Now().Since(began) > relistenMax:
			pause = relistenMin
		default:
			pause = min(max(2*pause, relistenMin), relistenMax)
		}
	}
}

// sleep reports false when nobody is to listen any more.
func (e *ear) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.s.ctx.Done():
		return false
	}
}

// session is one subscription, until it fails.
func (e *ear) session() error {
	ctx, cancel := context.WithCancel(e.s.ctx)
	channel := e.s.channels[e.bucket]
	pubsub, err := goredis.Subscribe(ctx, e.n.client, channel.Sharded, channel.Name)
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
		message, err := pubsub.ReceiveTimeout(goredis.NotAnew, silentFor)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout() && !pinged:
			if e.s.dismiss(e) {
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
			e.s.all()
		case *redis.Message:
			e.s.hear(e.n.index, message.Payload)
		}
	}
}
