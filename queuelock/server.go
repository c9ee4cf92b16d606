package queuelock

import (
	"context"
	"runtime"

	"golang.org/x/time/rate"

	"github.com/lockkit/lockkit/internal/join"
)

// A server has the state that the tasks of one asynq server share.
type server struct {
	places        chan struct{} // the waiting places; each task that waits for a held key has an element in it
	returnLimiter *rate.Limiter // of tasks that are given back: without it, asynq would deliver them without a pause
	outage        outage
}

func (m *Middleware) newServer(concurrency int) *server {
	if concurrency < 1 {
		concurrency = runtime.NumCPU() // as in asynq
	}

	// At least one worker must not wait for a held key.
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

// tryTakePlace takes a waiting place, and reports whether there was one.
func (s *server) tryTakePlace() bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *server) releasePlace() { <-s.places }

type originKey struct{ *shared }

// An origin is the server that a task comes from. Configure passes it in the BaseContext.
type origin struct {
	server  *server
	baseCtx context.Context // the application's BaseContext

	// reclaimed is closed when asynq counts the task as failed: from then on, it ignores results. It is nil without
	// Configure.
	reclaimed     <-chan struct{}
	markReclaimed func() // closes reclaimed
}

// origin returns the origin of a task. Without Configure, it returns a new server that has no waiting places.
func (m *Middleware) origin(ctx context.Context) origin {
	if from, ok := ctx.Value(originKey{m.shared}).(origin); ok {
		return from
	}

	m.logOnce("queuelock: a server was made without Configure (or its BaseContext was replaced afterwards): " +
		"tasks that wait for their turn count as failed, and are archived when their retries are used up. " +
		"Call Configure(&cfg) last, before asynq.NewServer(redis, cfg)")
	return origin{server: m.newServer(1), baseCtx: context.WithoutCancel(ctx)}
}

// joinBase returns a context that ends with taskCtx or with the BaseContext of the task's server.
func joinBase(taskCtx, baseCtx context.Context) (joint context.Context, stop func()) {
	if baseCtx.Done() == nil {
		return taskCtx, func() {}
	}
	return join.Contexts(taskCtx, baseCtx)
}
