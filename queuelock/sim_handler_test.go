package queuelock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/sim"
)

// simTasks are the kinds of tasks, by the behavior of their handlers.
var simTasks = []string{
	"works",     // returns early if its context ends
	"fails",     // the first one to three times
	"leaves",    // returns nil if its context ends
	"ignores",   // ignores its context
	"panics",    // the first time
	"exits",     // ends its goroutine, the first time
	"skips",     // returns asynq.SkipRetry
	"revokes",   // returns asynq.RevokeTask
	"cools",     // returns Cooldown the first one or two times
	"overstays", // does not return within the grace, the first time
	"unfit",     // its payload has no key
}

// A simSpec is the task that a step describes.
type simSpec struct {
	number int
	sim.Step
}

// The sources of a task's id: asynq, ID, the producer's own TaskID, or the UUID of an entity. Each entity has two
// tasks.
const byAsynq, byID, byTaskID, byEntity = 0, 1, 2, 3

func (t *simSpec) id() int { return t.With["id"] }

func (t *simSpec) retries() int { return []int{8, 0, 1, 3}[t.With["retries"]] }

func (t *simSpec) timeout() time.Duration {
	return []time.Duration{0, 10 * time.Second, 16 * time.Second, 30 * time.Second}[t.With["timeout"]]
}

func (t *simSpec) times() int { return t.With["times"] } // sets how often it fails or cools down

func (t *simSpec) deadline() bool { return t.With["deadline"] == 1 }

// drawTask draws a task and the behavior of its handler.
func drawTask(r *rand.Rand, keys int) sim.Step {
	s := sim.Step{At: time.Duration(r.Int64N(int64(simSteps * 3 / 4))), Do: "works", With: map[string]int{
		"id": r.IntN(4), "retries": r.IntN(4), "timeout": r.IntN(4), "queue": r.IntN(2), "times": r.IntN(3),
	}}
	switch r.IntN(8) {
	case 0:
		s.With["deadline"] = 1
	case 1, 2:
		s.With["again"] = 1
	}
	if r.IntN(2) == 0 {
		s.Do = sim.Pick(r, simTasks...)
	}
	if keys > 0 {
		s.Who = r.IntN(keys) * min(r.IntN(4), 1) // the first key is hot
	}
	s.For = sim.Between(r, 10*time.Millisecond, 3*time.Second)
	if s.Do == "leaves" || s.Do == "ignores" {
		s.For = sim.Between(r, 3*time.Second, 15*time.Second)
	}
	return s
}

// simKey returns core's key for key n of a task.
func simKey(n int) string { return core.Key("key", fmt.Sprint(n)) }

type simPayload struct {
	N   int    `json:"n"`
	Key string `json:"key,omitempty"`
}

// newTask adds the spec of the task that a step enqueues.
func (s *simulation) newTask(step sim.Step) *simSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &simSpec{number: len(s.specs), Step: step}
	s.specs = append(s.specs, t)
	return t
}

// produce enqueues a task. If its step says so, it enqueues the task again later.
func (s *simulation) produce(t *simSpec) {
	queue := simQueues[t.With["queue"]*s.Is("queues")]
	payload := simPayload{N: t.number, Key: fmt.Sprint(t.Who)}
	if t.Do == "unfit" {
		payload.Key = ""
	}
	body, _ := json.Marshal(payload)
	opts := []asynq.Option{asynq.MaxRetry(t.retries()), asynq.Queue(queue)}
	if d := t.timeout(); d > 0 {
		opts = append(opts, asynq.Timeout(d))
	}
	if t.deadline() {
		opts = append(opts, asynq.Deadline(time.Now().Add(30*time.Second)))
	}

	switch t.id() {
	case byID:
		opts = append(opts, ID("task", fmt.Sprint(t.number)))
	case byTaskID:
		opts = append(opts, asynq.TaskID(fmt.Sprint("task:", t.number)))
	case byEntity:
		opts = append(opts, asynq.TaskID(fmt.Sprintf("00000000-0000-4000-8000-%012d", t.number/2)))
	}

	s.enqueue(asynq.NewTask("task:"+t.Do, body), opts)
	if t.With["again"] == 0 || t.id() == byAsynq {
		return
	}
	time.Sleep(time.Duration(4+12*t.times()) * time.Second)
	s.Count("enqueued again")
	s.enqueue(asynq.NewTask("task:"+t.Do, body), append(opts, asynq.Queue(simQueues[s.Is("queues")])))
}

// enqueue enqueues a task. It tries again until asynq's Redis accepts the task.
func (s *simulation) enqueue(t *asynq.Task, opts []asynq.Option) {
	for {
		info, err := s.client.Enqueue(t, opts...)
		switch {
		case err == nil:
			s.locked(func() { s.exists(info.ID, info.Queue, t) })
			return
		case errors.Is(err, asynq.ErrTaskIDConflict):
			return
		}
		time.Sleep(time.Second)
	}
}

var errSim = errors.New("failed")

// handle is the handler of all tasks.
func (p *simProcess) handle(ctx context.Context, _ *asynq.Task) (err error) {
	d := delivered(ctx)
	run, err := p.s.begins(d, ctx)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			p.s.returns(d, errSim, true)
		}
	}()
	err = p.work(ctx, d, run)
	returned = true
	p.s.returns(d, err, false)
	return err
}

// work does the handler's work in the run with the given number, from 1.
func (p *simProcess) work(ctx context.Context, d *simDelivery, run int) error {
	t := d.task.spec
	if t == nil {
		return p.sleep(ctx, 200*time.Millisecond) // a tick
	}
	switch {
	case t.Do == "overstays" && run == 1:
		at, _ := d.ctx.Deadline()
		if t.timeout() == 0 {
			at = time.Now()
		}
		return p.sleep(context.Background(), time.Until(at)+p.grace+10*time.Second)
	case t.Do == "ignores" && run <= t.times():
		return cmp.Or(p.sleep(context.Background(), t.For), errSim)
	case t.Do == "ignores":
		return p.sleep(context.Background(), t.For)
	}

	err := p.sleep(ctx, t.For)
	switch {
	case t.Do == "leaves" && !errors.Is(err, errSim):
		return nil
	case err != nil:
		return err
	case t.Do == "fails" && run <= 1+t.times():
		return errSim
	case t.Do == "panics" && run == 1:
		panic(errSim)
	case t.Do == "exits" && run == 1 && t.timeout() > 0:
		runtime.Goexit()
	case t.Do == "skips":
		return fmt.Errorf("%w: %w", errSim, asynq.SkipRetry)
	case t.Do == "revokes":
		return fmt.Errorf("%w: %w", errSim, asynq.RevokeTask)
	case t.Do == "cools" && run <= 1+t.times()%2:
		return fmt.Errorf("%w: %w", errSim, Cooldown(d.rest()))
	}
	return nil
}

// rest returns the cooldown that the handler asks for.
func (d *simDelivery) rest() time.Duration {
	return []time.Duration{0, 2500 * time.Millisecond, 12 * time.Second}[d.task.spec.times()]
}

// sleep waits for d. It returns an error if ctx ends or the process dies first.
func (p *simProcess) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.gone:
		return errSim
	}
}

// begins judges the start of a handler, and returns the number of the run of its task.
func (o *simOracle) begins(d *simDelivery, ctx context.Context) (run int, err error) {
	run, err = o.beginsLocked(d, ctx)
	if err != nil {
		return 0, err
	}
	r, _ := FromContext(ctx)
	for i, key := range d.keys {
		token := uint64(0)
		if i == len(d.keys)-1 {
			token = r.FencingToken
		}
		o.enters(d, key, token)
	}
	return run, nil
}

func (o *simOracle) beginsLocked(d *simDelivery, ctx context.Context) (run int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.p.dead {
		return 0, errSim
	}
	d.work, d.ran = ctx, true
	o.runs[d.keys[0]]++
	o.s.Tracef("%s: runs", d.who)
	r, _ := FromContext(ctx)
	lease, _ := core.FromContext(ctx)
	switch {
	case r.Identity != d.keys[0]:
		o.wrong(d, "the identity is %q", r.Identity)
	case lease == nil || lease.Key() != d.keys[len(d.keys)-1] || lease.FencingToken() != r.FencingToken:
		o.wrong(d, "the lease is not that of its key: %+v", r)
	case !d.atLast && d.half.Before(time.Now().Add(-slack)):
		o.wrong(d, "begins with less than half of its time left")
	}

	for _, key := range d.keys {
		if !d.held[key] && d.lostAt[key].IsZero() || !d.lostAt[key].IsZero() && d.lostAt[key].Before(time.Now()) {
			o.wrong(d, "runs without the lease of %s", key)
		}
	}

	if rec := o.records[d.keys[0]]; rec != nil && rec.by != nil && d.remembered {
		switch {
		case rec.lost:
			o.s.Count("excused: nodes forgot the record")
		case time.Since(rec.at) < d.p.retention-slack:
			o.wrong(d, "runs %v after its completion was recorded", time.Since(rec.at))
		default:
			o.s.Count("runs again after the retention")
		}
	}
	return o.runs[d.keys[0]], nil
}

// returns judges the end of a handler.
func (o *simOracle) returns(d *simDelivery, err error, abrupt bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	d.returned, d.abrupt, d.returnedAt, d.ended = err, abrupt, now, d.work.Err() != nil
	o.s.Tracef("%s: returns %v", d.who, err)

	for _, key := range d.keys {
		delete(o.holders[key], d)
		lost := d.lostAt[key]
		switch {
		case !lost.IsZero() && lost.Before(now) && !d.ended:
			o.wrong(d, "its context has not ended, and the lease on %s has", key)
		case d.held[key] && now.Sub(d.ctxEnd()) > d.p.grace+simTTL+slack:
			o.wrong(d, "holds %s %v after its context has ended", key, now.Sub(d.ctxEnd()))
		}
	}

	switch over := now.After(d.ctxEnd()); {
	case over && !d.ended:
		o.wrong(d, "its context has not ended, and asynq's has")
	case over && len(d.lostAt) == 0 && d.p.grace > 0 && (d.work.Err() != d.ctx.Err() || context.Cause(d.work) != d.ctx.Err()):
		o.wrong(d, "its context ended with %v (%v), and asynq's with %v", d.work.Err(), context.Cause(d.work), d.ctx.Err())
	}

	d.lost = errors.Is(context.Cause(d.work), core.ErrLost) || !d.lossAt.IsZero() && d.lossAt.Before(now)
	if !abrupt && (err == nil || errors.Is(err, asynq.RevokeTask)) {
		o.done[d.keys[0]] = o.done[d.keys[0]] || !d.p.dead
	}
}
