package queuelock

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/time/rate"

	"github.com/lockkit/lockkit/internal/join"
)

// A server is what the tasks of one asynq server share.
type server struct {
	places        chan struct{} // has one for each task that waits for a held key
	returnLimiter *rate.Limiter // of tasks that are given back: while all that come have to wait, asynq delivers them without a pause
	outage        outage
}

type originKey struct{ *shared }

func (m *Middleware) newServer(concurrency int) *server {
	if concurrency < 1 {
		concurrency = runtime.NumCPU() // as in asynq
	}
	places := m.waiters
	if places == quarterOfWorkers {
		places = (concurrency + 3) / 4
	}
	return &server{
		places:        make(chan struct{}, min(places, concurrency-1)),
		returnLimiter: rate.NewLimiter(rate.Limit(10*concurrency), 4*concurrency),
		outage:        outage{bounces: map[string]bounce{}},
	}
}

// An arrival is what Configure tells of a task that comes to a handler.
type origin struct {
	server        *server
	baseCtx       context.Context // of the configuration
	reclaimed     <-chan struct{} // closed when asynq takes the task for failed, and hears nothing any more; nil: it is not known
	markReclaimed func()          // closes it
}

// arrival returns that of a task. If Configure was not called for it, a makeshift without waiting places stands in.
func (m *Middleware) origin(ctx context.Context) origin {
	if a, ok := ctx.Value(originKey{m.shared}).(origin); ok {
		return a
	}
	m.logOnce("queuelock: a server was made without Configure (or its BaseContext was replaced afterwards): tasks that wait for their turn count as failed, and are archived when their retries are used up. Call Configure(&cfg) last, before asynq.NewServer(redis, cfg)")
	return origin{server: m.newServer(1), baseCtx: context.WithoutCancel(ctx)}
}

// withBase returns a context of a task that also ends with the BaseContext of its server.
func joinBase(ctx, base context.Context) (joint context.Context, stop func()) {
	if base.Done() == nil {
		return ctx, func() {}
	}
	return join.Contexts(ctx, base)
}

// takePlace takes a waiting place, if there is one.
func (s *server) tryTakePlace() bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *server) releasePlace() { <-s.places }

// Configure wires the Middleware into the configuration of a server. Call it last before asynq.NewServer, once for each
// server. It wraps what cfg has, or asynq's defaults:
//
//   - IsFailure and RetryDelayFunc: a task that is given back counts no retry, and comes back at once or after the cooldown
//     of its key
//   - ErrorHandler: is not called for such a task, and tells the middleware when asynq takes a task for failed
//   - BaseContext: tells the middleware which server a task came to, and how many workers that has. Its end ends the
//     contexts of handlers behind the middleware, and of no others: asynq would count a retry of each task that comes to
//     the server from then on, and archive last attempts unrun. To end the other handlers, shut the server down
//   - TaskCheckInterval and DelayedTaskCheckInterval: if they are not set, 250ms instead of asynq's 1s and 5s, because
//     a task that was given back comes at the next such check
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
			return e.delay
		}
		return delay(n, err, t)
	}
	isFailure := cfg.IsFailure
	cfg.IsFailure = func(err error) bool {
		_, notRun := errors.AsType[*notRunError](err)
		return err != nil && !notRun && (isFailure == nil || isFailure(err))
	}
	handler := cfg.ErrorHandler
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, t *asynq.Task, err error) {
		if a, ok := ctx.Value(originKey{m.shared}).(origin); ok {
			a.markReclaimed()
		}
		if _, notRun := errors.AsType[*notRunError](err); !notRun && handler != nil {
			handler.HandleError(ctx, t, err)
		}
	})
	base := cfg.BaseContext
	if base == nil {
		base = context.Background //nolint:forbidigo // asynq's own default
	}
	s := m.newServer(cfg.Concurrency)
	cfg.BaseContext = func() context.Context {
		own := base()
		taken, take := context.WithCancel(context.WithoutCancel(own))
		return context.WithValue(context.WithoutCancel(own), originKey{m.shared}, origin{s, own, taken.Done(), take})
	}
	return nil
}

// outagePatience is how long a task waits for locks that are out of reach. A server that cannot reach them keeps its workers
// waiting, and so leaves the tasks to those that can: it takes as many as it has workers in that time.
const outageWait = 5 * time.Second

// An outage is what a server gave back because the locks were out of reach.
type outage struct {
	mu      sync.Mutex
	bounces map[string]bounce // by the key of the identity
}

// A bounce is a task that was given back, maybe several times.
type bounce struct {
	count      int
	waitsUntil time.Time
}

// patience returns how long a task waits. One that comes straight back has met no server that took it: those that could run
// it have nothing else to do, and were only slower to fetch it. So it is given back soon, though less soon with time, in case
// that there is none.
func (o *outage) waitLimit(task string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, limit := time.Now(), outageWait
	b := o.bounces[task]
	if b.count > 0 && now.Sub(b.waitsUntil) < outageWait {
		limit = outageWait / 32 << min(b.count/4, 3)
	} else {
		b.count = 0
	}
	if len(o.bounces) >= 1000 {
		clear(o.bounces)
	}
	o.bounces[task] = bounce{b.count + 1, now.Add(limit)}
	return limit
}
