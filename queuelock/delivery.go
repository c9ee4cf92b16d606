package queuelock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// A delivery is one arrival of a task at a handler.
type delivery struct {
	r     *Runner
	task  *asynq.Task
	keys  []string  // of the task, and of what it works on, if it has one
	name  string    // of the task's type, for observers
	last  bool      // asynq archives the task whatever the error is
	until time.Time // shortly before its deadline
	seats chan struct{}
}

func (r *Runner) delivery(ctx context.Context, t *asynq.Task) (*delivery, error) {
	if _, nested := FromContext(ctx); nested {
		return nil, errors.New("queuelock: the middleware is in use twice on the way to this handler: remove one")
	}
	retried, ok := asynq.GetRetryCount(ctx)
	if !ok {
		return nil, errors.New("queuelock: the context is not that of a task which an asynq.Server delivered: to test a handler without one, call it without the middleware, with a context made by NewContext")
	}
	most, _ := asynq.GetMaxRetry(ctx)
	if most > r.conf.maxRetry {
		r.retries.Do(func() {
			r.locker.Logger().Warn("queuelock: a task may be retried more often than the retention of completion records was checked for: raise WithMaxRetry, or enqueue it with a smaller asynq.MaxRetry",
				"type", t.Type(), "max_retry", most, "checked_for", r.conf.maxRetry)
		})
	}
	keys, err := r.conf.keys(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("queuelock: not run: %w", err)
	}
	d := &delivery{r, t, keys, r.names.of(t.Type()), retried >= most, lastMoment(ctx), r.seats(ctx)}
	d.lookForStamp(ctx)
	return d, nil
}

// lastMoment returns until when asynq can be told something: shortly before the task's deadline, at which it takes the
// task for failed, and stores that instead.
func lastMoment(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok { // other middleware has taken it off
		return time.Now().AddDate(1, 0, 0)
	}
	return deadline.Add(-min(time.Until(deadline)/10, time.Second))
}

func (d *delivery) event(ctx context.Context, kind core.EventKind) {
	d.r.locker.Event(ctx, core.Event{Source: "queuelock", Name: d.name, Kind: kind})
}

// log returns a logger that names the task.
func (d *delivery) log(ctx context.Context) *slog.Logger {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	log := d.r.locker.Logger().With("type", d.task.Type(), "queue", queue, "id", id, "key", d.keys[0])
	if len(d.keys) > 1 {
		return log.With("entity", d.keys[1])
	}
	return log
}

// maxTypes bounds how many types of tasks observers see by name. asynq matches handlers by prefix, so types
// may be made up at run time.
const maxTypes = 256

// names are the types that observers see.
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

// of returns the name of a type of tasks.
func (n *names) of(typ string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[typ] && len(n.known) >= maxTypes {
		return "other"
	}
	n.known[typ] = true
	return typ
}
