package queuelock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/hibiken/asynq"
)

// Configure wires the Runner into the configuration of a server: call it last, before asynq.NewServer. It
// wraps what cfg has, and asynq's defaults where that is nothing:
//
//   - IsFailure and RetryDelayFunc: a task that was not run ([ErrNotRun]) counts no retry, and is delivered
//     again when its key may be free
//   - ErrorHandler: does not hear of tasks that only wait for their turn
//   - BaseContext: tells the middleware that the server is wired, and its share of workers that may wait
//
// The error says that completion records would be forgotten (WithRetention) before a task could be delivered
// again, by RetryDelayFunc, which it asks about every retry up to WithMaxRetry of a task of type
// "queuelock:probe". Then cfg is unchanged.
func (r *Runner) Configure(cfg *asynq.Config) error {
	if cfg == nil {
		return errors.New("queuelock: configuration is nil")
	}
	delay := cfg.RetryDelayFunc
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	if err := r.checkRetention(delay); err != nil {
		return err
	}
	cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if e, ok := errors.AsType[*notRunError](err); ok {
			return e.after
		}
		return delay(n, err, t)
	}
	isFailure := cfg.IsFailure
	if isFailure == nil {
		isFailure = func(err error) bool { return err != nil } // as in asynq
	}
	cfg.IsFailure = func(err error) bool {
		_, notRun := errors.AsType[*notRunError](err)
		return !notRun && isFailure(err)
	}
	if handler := cfg.ErrorHandler; handler != nil {
		cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
			if e, ok := errors.AsType[*notRunError](err); !ok || !e.quiet {
				handler.HandleError(ctx, t, err)
			}
		})
	}
	base := cfg.BaseContext
	if base == nil {
		base = context.Background //nolint:forbidigo // asynq's own default
	}
	seats := make(chan struct{}, r.waiters(cfg.Concurrency))
	cfg.BaseContext = func() context.Context { return context.WithValue(base(), wiringKey{r}, seats) }
	return nil
}

// redelivery is how long asynq may take to deliver a task whose worker vanished, delay aside: its lease
// (30s), the recoverer's patience (30s) and period (1m), the forwarder's period, and something to spare.
const redelivery = 3 * time.Minute

// checkRetention compares the retention with the longest time between two deliveries.
func (r *Runner) checkRetention(delay asynq.RetryDelayFunc) error {
	probe := asynq.NewTask("queuelock:probe", nil)
	longest, retry := time.Duration(0), 0
	for n := range r.conf.maxRetry {
		if d := max(delay(n, asynq.ErrLeaseExpired, probe), delay(n, context.DeadlineExceeded, probe)); d > longest {
			longest, retry = d, n+1
		}
	}
	if r.conf.retention >= longest+redelivery {
		return nil
	}
	return fmt.Errorf("queuelock: completion records are kept for %v (WithRetention), but retry %d of a task comes %v after the delivery before it, and %v more where a worker vanished: a task that was completed could run again. Raise WithRetention, cut RetryDelayFunc, or say with WithMaxRetry that tasks have fewer than %d retries",
		r.conf.retention, retry, longest, redelivery, r.conf.maxRetry)
}

func (r *Runner) waiters(concurrency int) int {
	if r.conf.waiters != nil {
		return *r.conf.waiters
	}
	if concurrency < 1 {
		concurrency = runtime.NumCPU() // as asynq does
	}
	return concurrency / 4
}

// wiringKey is what Configure puts into the contexts of a server's tasks.
type wiringKey struct{ r *Runner }

// seats has room for as many workers of the task's server as may wait in place. Where Configure was not called for that
// server, there is none, and it says so once.
func (r *Runner) seats(ctx context.Context) chan struct{} {
	seats, ok := ctx.Value(wiringKey{r}).(chan struct{})
	if !ok {
		const missing = "queuelock: a server was made without Runner.Configure (or its BaseContext was replaced afterwards): tasks that wait for their turn count as failed, and are archived when their retries are used up. Call Configure(&cfg) last, before asynq.NewServer(redis, cfg)"
		r.unwired.Do(func() { r.locker.Logger().Error(missing) })
	}
	return seats
}
