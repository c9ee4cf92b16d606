package queuelock

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/time/rate"
)

// Configure wires the Runner into the configuration of a server: call it last, before asynq.NewServer, once for each
// server. It wraps what cfg has, and asynq's defaults where that is nothing:
//
//   - IsFailure and RetryDelayFunc: a task that was not run ([ErrNotRun]) counts no retry, and is delivered
//     again when its key may be free
//   - ErrorHandler: does not hear of tasks that only wait for their turn, and of locks that are out of reach once in 10s
//   - BaseContext: tells the middleware which server a task came to, and how many workers that has
//   - TaskCheckInterval and DelayedTaskCheckInterval, where they are not set, become 250ms instead of asynq's 1s and 5s:
//     that is by how much tasks that were given back come later than they should
//
// For each delivery RetryDelayFunc is asked once, with asynq.ErrLeaseExpired, how long asynq might take to deliver the
// task again, for the retention of its record.
func (r *Runner) Configure(cfg *asynq.Config) error {
	if cfg == nil {
		return errors.New("queuelock: configuration is nil")
	}
	concurrency, delay := cfg.Concurrency, cfg.RetryDelayFunc
	if concurrency < 1 {
		concurrency = runtime.NumCPU() // as asynq does
	}
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	w := r.newWiring(concurrency, delay)
	for _, interval := range []*time.Duration{&cfg.TaskCheckInterval, &cfg.DelayedTaskCheckInterval} {
		if *interval <= 0 {
			*interval = 250 * time.Millisecond
		}
	}
	w.slack = cfg.DelayedTaskCheckInterval + cfg.TaskCheckInterval*3/2
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
	cfg.BaseContext = func() context.Context {
		w.fetched()
		ctx := base()
		if other, twice := ctx.Value(wiringKey{r}).(*wiring); twice { // of a server that was made of the same cfg before
			other.missed.Add(-1)
			other.unfetch()
		}
		return context.WithValue(ctx, wiringKey{r}, w)
	}
	return nil
}

// A wiring is what the tasks of one server share.
type wiring struct {
	r *Runner
	workers
	absent absent
	outage outage
	delay  asynq.RetryDelayFunc
	slack  time.Duration // that a task comes later than it was told to

	seen   atomic.Bool   // by the middleware: a task of this server
	missed atomic.Int64  // tasks fetched before that
	alarms *rate.Limiter // how often ErrorHandler hears of locks that are out of reach
}

func (r *Runner) newWiring(concurrency int, delay asynq.RetryDelayFunc) *wiring {
	return &wiring{r: r, delay: delay, workers: newWorkers(concurrency), outage: outage{given: map[string]bounce{}}, absent: absent{of: map[string]*line{}},
		alarms: rate.NewLimiter(rate.Every(10*time.Second), 1)}
}

type wiringKey struct{ r *Runner }

// wiring is that of the task's server. Where Configure was not called for that server, there is a makeshift, and it says
// so once.
func (r *Runner) wiring(ctx context.Context) *wiring {
	w, ok := ctx.Value(wiringKey{r}).(*wiring)
	if !ok {
		const missing = "queuelock: a server was made without Runner.Configure (or its BaseContext was replaced afterwards): tasks that wait for their turn count as failed, and are archived when their retries are used up. Call Configure(&cfg) last, before asynq.NewServer(redis, cfg)"
		r.sayOnce(missing)
		return r.newWiring(1, asynq.DefaultRetryDelayFunc)
	}
	w.seen.Store(true)
	return w
}

// fetched notes that the server has fetched a task. Where it has fetched more than it has workers and the middleware has
// seen none of them, its handler is not behind the middleware, or all of them were past their deadlines.
func (w *wiring) fetched() {
	w.fetch()
	if !w.seen.Load() && w.missed.Add(1) > int64(w.total) {
		const missing = "queuelock: a server that Runner.Configure was called for runs tasks that the Runner's Middleware does not see: they run without locks. Wrap the handler: mux.Use(runner.Middleware)"
		w.r.sayOnce(missing)
	}
}

// sayOnce logs what is wrong with the wiring, unless it has before.
func (r *Runner) sayOnce(fault string) {
	if _, said := r.said.LoadOrStore(fault, true); !said {
		r.locker.Logger().Error(fault)
	}
}

// redelivery is for how long a delivery of a task may be followed by another: the delay before the next retry, and where
// the worker vanished asynq's lease (30s), the recoverer's patience (30s) and period (1m), the forwarder's period, and
// something to spare.
func (w *wiring) redelivery(retried int, t *asynq.Task) time.Duration {
	return min(max(w.delay(retried, asynq.ErrLeaseExpired, t), 0), maxRetention) + 3*time.Minute
}
