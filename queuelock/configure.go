package queuelock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// Configure wires the Middleware into the configuration of a server. Call it last before asynq.NewServer, once for each
// server. It wraps what cfg has, or asynq's defaults:
//
//   - IsFailure and RetryDelayFunc: a task that was not run ([ErrNotRun]) counts no retry, and comes back at once
//   - ErrorHandler: is not called for such tasks
//   - BaseContext: tells the middleware which server a task came to, and how many workers that has
//   - TaskCheckInterval and DelayedTaskCheckInterval: if they are not set, 250ms instead of asynq's 1s and 5s, because
//     that is how late tasks come that were given back
func (m *Middleware) Configure(cfg *asynq.Config) error {
	if cfg == nil {
		return errors.New("queuelock: configuration is nil")
	}
	cfg.TaskCheckInterval = cmp.Or(cfg.TaskCheckInterval, 250*time.Millisecond)
	cfg.DelayedTaskCheckInterval = cmp.Or(cfg.DelayedTaskCheckInterval, 250*time.Millisecond)
	delay := cfg.RetryDelayFunc
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if e, ok := errors.AsType[*notRunError](err); ok {
			return e.after
		}
		return delay(n, err, t)
	}
	isFailure := cfg.IsFailure
	cfg.IsFailure = func(err error) bool {
		_, notRun := errors.AsType[*notRunError](err)
		return err != nil && !notRun && (isFailure == nil || isFailure(err))
	}
	if handler := cfg.ErrorHandler; handler != nil {
		cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
			if _, notRun := errors.AsType[*notRunError](err); !notRun {
				handler.HandleError(ctx, t, err)
			}
		})
	}
	base := cfg.BaseContext
	if base == nil {
		base = context.Background //nolint:forbidigo // asynq's own default
	}
	s := m.newServer(cfg.Concurrency)
	cfg.BaseContext = func() context.Context { return context.WithValue(base(), serverKey{m.shared}, s) }
	return nil
}
