package queuelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// A tally counts the handlers of each key that run at the same time.
type tally struct {
	mu      sync.Mutex
	running map[string]map[int]bool // slots by key
	most    map[string]int
	done    map[string]int
	faults  []string
}

// run runs a handler of key, which takes d.
func (c *tally) run(ctx context.Context, key string, d time.Duration) error {
	run, _ := FromContext(ctx)
	c.mu.Lock()
	if c.running == nil {
		c.running, c.most, c.done = map[string]map[int]bool{}, map[string]int{}, map[string]int{}
	}
	if c.running[key] == nil {
		c.running[key] = map[int]bool{}
	}
	if c.running[key][run.Slot] {
		c.faults = append(c.faults, fmt.Sprintf("two handlers of %s in slot %d", key, run.Slot))
	}
	c.running[key][run.Slot] = true
	c.most[key] = max(c.most[key], len(c.running[key]))
	c.mu.Unlock()

	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running[key], run.Slot)
	c.done[key]++
	return nil
}

// want fails the test unless so many tasks of each key are done, and so many ran at a time.
func (c *tally) want(t *testing.T, done int, most map[string]int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, n := range most {
		if c.most[key] != n || c.done[key] != done {
			t.Errorf("%s: %d at a time, want %d; %d done, want %d", key, c.most[key], n, c.done[key], done)
		}
	}
	if c.faults != nil {
		t.Error(c.faults)
	}
}

// Each scene is a limit that users of asynq ask for: https://github.com/hibiken/asynq/issues/ and its name.
func TestLimitsThatUsersAskFor(t *testing.T) {
	byField := func(name string) func(t *asynq.Task) string {
		return func(t *asynq.Task) string {
			var fields map[string]any
			if err := json.Unmarshal(t.Payload(), &fields); err != nil {
				panic(err)
			}
			return fmt.Sprint(fields[name])
		}
	}
	keyFunc := func(of func(ctx context.Context, t *asynq.Task) string) Option {
		return WithKey(func(ctx context.Context, t *asynq.Task) (string, error) { return core.Key("limit", of(ctx, t)), nil })
	}
	queueOf := func(ctx context.Context, _ *asynq.Task) string { queue, _ := asynq.GetQueueName(ctx); return queue }

	for name, x := range map[string]struct {
		opts []Option
		of   func(ctx context.Context, t *asynq.Task) string // the name by which the tally counts a task
		keys int                                             // so many keys have the same number of tasks each
		most map[string]int                                  // how many run at a time, by name
	}{
		"797, tasks of a type": { // globally, across workers
			opts: []Option{keyFunc(func(_ context.Context, t *asynq.Task) string { return t.Type() }), WithConcurrency(3)},
			of:   func(context.Context, *asynq.Task) string { return "type" },
			keys: 1, most: map[string]int{"type": 3},
		},
		"328, a number for each queue": {
			opts: []Option{keyFunc(queueOf), WithConcurrencyFunc(func(ctx context.Context, t *asynq.Task) (int, error) {
				return map[string]int{"one": 2, "two": 5}[queueOf(ctx, t)], nil
			})},
			of:   queueOf,
			keys: 2, most: map[string]int{"one": 2, "two": 5},
		},
		"542, one queue limited and the other not": {
			opts: []Option{WithKey(Optional(func(ctx context.Context, t *asynq.Task) (string, error) {
				if queueOf(ctx, t) == "one" {
					return core.Key("queue", "one"), nil
				}
				return "", nil
			})), WithConcurrency(1)},
			of:   queueOf,
			keys: 2, most: map[string]int{"one": 1},
		},
		"590, tasks of a customer": {
			opts: []Option{field("customer"), WithConcurrency(2)},
			of:   func(_ context.Context, t *asynq.Task) string { return "customer " + byField("customer")(t) },
			keys: 3, most: map[string]int{"customer 0": 2, "customer 1": 2, "customer 2": 2},
		},
		"1090, a number by the plan of a customer": {
			opts: []Option{field("customer"), WithConcurrencyFunc(func(_ context.Context, t *asynq.Task) (int, error) {
				return map[string]int{"0": 1, "1": 2, "2": 4}[byField("customer")(t)], nil
			})},
			of:   func(_ context.Context, t *asynq.Task) string { return "customer " + byField("customer")(t) },
			keys: 3, most: map[string]int{"customer 0": 1, "customer 1": 2, "customer 2": 4},
		},
	} {
		bubbleOf(t, name, func(t *testing.T, r *rig) {
			const tasks = 60
			var c tally
			for i := range tasks {
				task := asynq.NewTask("task", fmt.Appendf(nil, `{"customer":%d,"n":%d}`, i%3, i))
				r.enqueue(task, asynq.Queue([]string{"one", "two"}[i%2]))
			}
			for range 3 {
				r.serve(setup{opts: x.opts, adjust: func(cfg *asynq.Config) {
					cfg.Concurrency = 10
					cfg.Queues = map[string]int{"one": 1, "two": 1}
				}}, func(ctx context.Context, t *asynq.Task) error {
					key := x.of(ctx, t)
					if x.most[key] == 0 { // its tasks have no key
						return nil
					}
					return c.run(ctx, key, 200*time.Millisecond)
				})
			}
			for start := time.Now(); time.Since(start) < 3*time.Minute; r.pass(time.Second) {
				if n := r.finished(); n == tasks {
					break
				}
			}
			c.want(t, tasks/x.keys, x.most)
		})
	}
}

// finished returns the number of tasks that are neither pending nor active nor scheduled.
func (r *rig) finished() int {
	left := 0
	for _, queue := range []string{"one", "two"} {
		info := must(r.inspector.GetQueueInfo(queue))
		left += info.Pending + info.Active + info.Scheduled + info.Retry
	}
	return 60 - left
}

// A completed task does not run again, and its redelivery takes no permit.
func TestCompletionWithConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.serve(setup{opts: []Option{field("order"), WithConcurrency(3)}}, r.works(time.Second))
		r.enqueue(order(1), ID("t"))
		r.pass(10 * time.Second)
		r.enqueue(order(1), ID("t"))
		r.pass(10 * time.Second)
		if n := r.ledger.count(&r.ledger.runs, theID); n != 1 {
			t.Errorf("ran %d times", n)
		}

		// Nothing is left: three callers get a permit, and one of them is the plain lock.
		lease := must(p.locker.TryAcquire(t.Context(), core.Key("order", "1")))
		must0(t, lease.Release(t.Context()))
	})
}

// A bad number is an error of New, or of the task.
func TestBadConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for text, opts := range map[string][]Option{
			"WithConcurrency(0)":    {field("order"), WithConcurrency(0)},
			"WithConcurrency(1025)": {field("order"), WithConcurrency(1025)},
			"needs WithKey":         {WithConcurrency(3)},
			"WithConcurrencyFunc":   {field("order"), WithConcurrencyFunc(nil)},
		} {
			if _, err := New(r.locker(), opts...); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v does not say %q", err, text)
			}
		}

		numbers := map[string]func() (int, error){
			"0":  func() (int, error) { return 0, nil },
			"no": func() (int, error) { return 0, errors.New("no plan") },
		}
		for name, number := range numbers {
			p := r.serve(setup{opts: []Option{field("order"), WithConcurrencyFunc(func(context.Context, *asynq.Task) (int, error) { return number() })}}, r.works(0))
			info := r.enqueue(order(1), asynq.MaxRetry(0))
			r.pass(10 * time.Second)
			if state := r.state(info); state != "archived" {
				t.Errorf("%s: the task is %s", name, state)
			}
			p.Shutdown()
		}
	})
}
