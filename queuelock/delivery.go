package queuelock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// A delivery is one arrival of a task at a handler.
type delivery struct {
	*policy
	r        *Runner
	task     *asynq.Task
	keys     []string // of the task, and of what it works on, if it has one
	name     string   // of the task's type, for observers
	pace     *pace    // of that type
	retried  int      // failures counted so far
	last     bool     // asynq archives the task whatever the error is
	deadline deadline
	lease    []core.CallOption
	wiring   *wiring
	worker   *worker
	abandon  []func() // ends the contexts of the leases
}

// misused returns what is wrong with the way to the middleware.
func misused(ctx context.Context) error {
	if _, nested := FromContext(ctx); nested {
		return errors.New("queuelock: the middleware is in use twice on the way to this handler: remove one")
	}
	if _, ok := asynq.GetRetryCount(ctx); !ok {
		return errors.New("queuelock: the context is not that of a task which an asynq.Server delivered: to test a handler without one, call it without the middleware, with a context made by NewContext")
	}
	return nil
}

func (r *Runner) delivery(ctx context.Context, t *asynq.Task, w *wiring, by *worker) (*delivery, error) {
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	d := &delivery{policy: r.conf.of(t.Type()), r: r, task: t, retried: retried, last: retried >= most, wiring: w, worker: by}
	d.name, d.pace = r.types.of(t.Type())
	d.deadline, d.lease = newDeadline(ctx, d.pace), d.leaseOptions(d.name, w.redelivery(retried, t))
	var err error
	d.keys, err = d.policy.keys(ctx, t)
	d.lookForStamp(ctx)
	return d, err
}

func (d *delivery) event(ctx context.Context, kind core.EventKind) {
	d.r.locker.Event(ctx, core.Event{Source: "queuelock", Name: d.name, Kind: kind})
}

// log returns a logger that names the task, and by the words of WithIdentity and WithKey its keys.
func (d *delivery) log(ctx context.Context) *slog.Logger {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	log := d.r.locker.Logger().With("type", d.task.Type(), "queue", queue, "id", id)
	for i, key := range d.keys {
		log = log.With([]string{"identity", "key"}[i], key)
	}
	return log
}

// A deadline bounds how long a task may wait before its handler is called.
type deadline struct {
	wait time.Time // if it can come back later
	last time.Time // if it cannot
	tell time.Time // until when asynq can be told something: at its deadline it takes the task for failed, and stores that instead
}

// newDeadline leaves the handler the time that it needs, going by those of its type that have run: at least half of what
// is left now, where it can come back.
func newDeadline(ctx context.Context, p *pace) deadline {
	at, ok := ctx.Deadline()
	if !ok { // other middleware has taken it off
		at = time.Now().AddDate(1, 0, 0)
	}
	left, needs := time.Until(at), p.needs()
	telling := min(left/10, time.Second)
	return deadline{
		wait: at.Add(-max(min(needs, left), left/2)),
		last: at.Add(-max(min(needs, left/2), telling)),
		tell: at.Add(-telling),
	}
}

// maxTypes bounds how many types of tasks observers see by name. asynq matches handlers by prefix, so types
// may be made up at run time.
const maxTypes = 256

// types are the types of tasks that observers see.
type types struct {
	mu    sync.Mutex
	known map[string]*pace
}

// of returns the name of a type of tasks, and their pace.
func (n *types) of(typ string) (string, *pace) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known[typ] == nil && len(n.known) >= maxTypes {
		typ = "other"
	}
	p := n.known[typ]
	if p == nil {
		p = &pace{}
		n.known[typ] = p
	}
	return typ, p
}
