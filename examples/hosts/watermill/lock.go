// Package watermill runs the handler of each message once. Copy lock.go.
package watermill

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
)

// oncePerMessage runs each handler once for each message, over all processes, and records it after the handler has
// succeeded. It is for handlers without a publisher.
func oncePerMessage(locker *core.Locker) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			defer msg.SetContext(ctx) // for a middleware that tries again, such as Retry
			key := core.Key("message", message.HandlerNameFromCtx(ctx), msg.UUID)

			err := locker.Once(ctx, key, func(ctx context.Context) error {
				msg.SetContext(ctx) // ends if the lease is lost
				_, err := next(msg)
				return err
			})
			if errors.Is(err, core.ErrDone) {
				return nil, nil // an earlier delivery has done it: acknowledge
			}
			return nil, err
		}
	}
}
