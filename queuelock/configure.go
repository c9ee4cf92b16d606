package queuelock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// Configure wires the Middleware into the configuration of a server. Call it last before asynq.NewServer, once for each
// server. It wraps the functions in cfg, or asynq's defaults:
//
//   - IsFailure and RetryDelayFunc: a task that is given back counts no retry, and comes back at once or after the
//     cooldown of its key
//   - ErrorHandler: is not called for such a task, and notifies the middleware when asynq counts a task as failed
//   - BaseContext: passes the server of a task and its number of workers to the middleware. Its end ends the contexts
//     of handlers behind the middleware only: asynq would count a retry of each task that comes to the server from then
//     on, and archive last attempts unrun. To end the other handlers, shut the server down
//   - TaskCheckInterval and DelayedTaskCheckInterval: if they are not set, 250ms instead of asynq's 1s and 5s, because
//     a task that was given back comes at the next such check
func (m *Middleware) Configure(cfg *asynq.Config) error {
	if cfg == nil {
		return errors.New("queuelock: configuration is nil")
	}

	cfg.TaskCheckInterval = cmp.Or(cfg.TaskCheckInterval, 250*time.Millisecond)
	cfg.DelayedTaskCheckInterval = cmp.Or(cfg.DelayedTaskCheckInterval, 250*time.Millisecond)
	cfg.RetryDelayFunc = wrapRetryDelay(cfg.RetryDelayFunc)
	cfg.IsFailure = wrapIsFailure(cfg.IsFailure)
	cfg.ErrorHandler = m.wrapErrorHandler(cfg.ErrorHandler)
	cfg.BaseContext = m.wrapBaseContext(cfg.BaseContext, m.newServer(cfg.Concurrency))
	return nil
}

func wrapRetryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	if next == nil {
		next = asynq.DefaultRetryDelayFunc
	}

	return func(n int, err error, t *asynq.Task) time.Duration {
		if e, ok := errors.AsType[*notRunError](err); ok {
			return e.delay
		}
		return next(n, err, t)
	}
}

func wrapIsFailure(next func(error) bool) func(error) bool {
	return func(err error) bool {
		if err == nil || isNotRun(err) {
			return false
		}
		return next == nil || next(err)
	}
}

func (m *Middleware) wrapErrorHandler(next asynq.ErrorHandler) asynq.ErrorHandler {
	return asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
		// asynq also calls it for a task that is still in its worker, after the end of the task's context.
		if from, ok := ctx.Value(originKey{m.shared}).(origin); ok {
			from.markReclaimed()
		}
		if next != nil && !isNotRun(err) {
			next.HandleError(ctx, t, err)
		}
	})
}

// wrapBaseContext returns a BaseContext that never ends. asynq calls it for each task.
func (m *Middleware) wrapBaseContext(next func() context.Context, s *server) func() context.Context {
	if next == nil {
		next = context.Background //nolint:forbidigo // asynq's own default
	}

	return func() context.Context {
		// asynq would count a retry of each task if its context had ended. Handlers get the end of baseCtx from
		// joinBase.
		baseCtx := next()
		unending := context.WithoutCancel(baseCtx)
		reclaimedCtx, markReclaimed := context.WithCancel(unending)
		from := origin{server: s, baseCtx: baseCtx, reclaimed: reclaimedCtx.Done(), markReclaimed: markReclaimed}
		return context.WithValue(unending, originKey{m.shared}, from)
	}
}
