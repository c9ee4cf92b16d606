package cronlock

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A life is what ends when a process dies: to the nodes, that it is cut off from them for good. Its goroutines
// go on, but nothing of what they do counts.
type life struct{ over atomic.Bool }

var errDead = errors.New("the process is dead")

func (l *life) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.over.Load() {
			return nil, errDead
		}
		return next(ctx, network, addr)
	}
}

func (l *life) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.over.Load() {
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (l *life) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if l.over.Load() {
			return errDead
		}
		return next(ctx, cmds)
	}
}

// mortal starts a replica that dies when die is called.
func (w *world) mortal(name string, opts ...Option) (r *replica, die func()) {
	w.t.Helper()
	var l life
	return w.replicaOn(name, w.locksVia(&l), opts...), func() { l.over.Store(true) }
}

// attemptsInOrder checks that the runs are those of the first attempts at a tick, each with a greater fencing token than
// the one before.
func attemptsInOrder(t *testing.T, runs []ran) {
	t.Helper()
	for i, r := range runs {
		if r.Attempt != i+1 {
			t.Errorf("run %d is attempt %d", i+1, r.Attempt)
		}
		if i > 0 && r.FencingToken <= runs[i-1].FencingToken {
			t.Errorf("attempt %d has fencing token %d, the one before %d", i+1, r.FencingToken, runs[i-1].FencingToken)
		}
	}
}

// ended waits for the context to end, and returns when and why.
func ended(ctx context.Context) (time.Time, error) {
	<-ctx.Done()
	return time.Now(), context.Cause(ctx)
}
