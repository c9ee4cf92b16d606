package queuelock

import (
	"context"
	"runtime"

	"golang.org/x/time/rate"
)

// A server is what the tasks of one asynq server share.
type server struct {
	places  chan struct{} // has one for each task that waits for a held key
	returns *rate.Limiter // of tasks that are given back: while all that come have to wait, asynq delivers them without a pause
	outage  outage
}

type serverKey struct{ *shared }

func (m *Middleware) newServer(concurrency int) *server {
	if concurrency < 1 {
		concurrency = runtime.NumCPU() // as in asynq
	}
	places := m.waiters
	if places == aQuarter {
		places = (concurrency + 3) / 4
	}
	return &server{
		places:  make(chan struct{}, min(places, concurrency-1)),
		returns: rate.NewLimiter(rate.Limit(10*concurrency), 4*concurrency),
		outage:  outage{given: map[string]bounce{}},
	}
}

// server returns that of a task. If Configure was not called for it, a makeshift without waiting places stands in.
func (m *Middleware) server(ctx context.Context) *server {
	if s, ok := ctx.Value(serverKey{m.shared}).(*server); ok {
		return s
	}
	m.complain("queuelock: a server was made without Configure (or its BaseContext was replaced afterwards): tasks that wait for their turn count as failed, and are archived when their retries are used up. Call Configure(&cfg) last, before asynq.NewServer(redis, cfg)")
	return m.newServer(1)
}

// takePlace takes a waiting place, if there is one. It is left by a receive.
func (s *server) takePlace() bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
		return false
	}
}
