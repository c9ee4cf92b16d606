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
	"github.com/lockkit/lockkit/core/semaphore"
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

// Handlers of a key run in slots of their own, as many at a time as the key allows.
func TestSlots(t *testing.T) {
	customer := func(t *asynq.Task) string {
		var fields struct{ Customer json.Number }
		if err := json.Unmarshal(t.Payload(), &fields); err != nil {
			panic(err)
		}
		return "customer " + fields.Customer.String()
	}
	plans := map[string]int{"customer 0": 1, "customer 1": 2, "customer 2": 4}

	for name, x := range map[string]struct {
		limit Option
		most  map[string]int // how many run at a time, by customer
	}{
		"a number for all keys": {WithConcurrency(2), map[string]int{"customer 0": 2, "customer 1": 2, "customer 2": 2}},
		"a number for each key": {
			WithConcurrencyFunc(func(_ context.Context, t *asynq.Task) (int, error) { return plans[customer(t)], nil }),
			plans,
		},
	} {
		bubbleOf(t, name, func(t *testing.T, r *rig) {
			const tasks = 60
			var c tally
			for i := range tasks {
				r.enqueue(asynq.NewTask("task", fmt.Appendf(nil, `{"customer":%d,"n":%d}`, i%3, i)))
			}
			for range 3 {
				r.serve(setup{opts: []Option{field("customer"), x.limit}, adjust: defaults(10)}, func(ctx context.Context, t *asynq.Task) error {
					return c.run(ctx, customer(t), 200*time.Millisecond)
				})
			}
			for start := time.Now(); time.Since(start) < 3*time.Minute && r.finished() < tasks; {
				r.pass(time.Second)
			}
			c.want(t, tasks/3, x.most)
		})
	}
}

// finished returns how many of 60 tasks are neither pending nor active nor scheduled.
func (r *rig) finished() int {
	info := must(r.inspector.GetQueueInfo("default"))
	return 60 - info.Pending - info.Active - info.Scheduled - info.Retry
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

// With WithConcurrency a key has at most 494 bytes, because the names of the slots are longer than the key. A task with a
// longer key is not run, and none is lost: it is in asynq's archive, with an error that says why. core.Key hashes what has
// more than 512 bytes, so ByPayloadField has short keys for it.
func TestLongKeysWithConcurrency(t *testing.T) {
	const bareField = len("5:order/") + len("512:")
	for _, c := range []struct {
		bytes int // of the key, before it is hashed
		runs  bool
	}{
		{semaphore.MaxKey, true},
		{semaphore.MaxKey + 1, false},
		{512, false},
		{513, true},
	} {
		bubbleOf(t, fmt.Sprint(c.bytes, " bytes"), func(t *testing.T, r *rig) {
			runs := 0
			p := r.serve(setup{opts: []Option{field("order"), WithConcurrency(2)}}, func(context.Context, *asynq.Task) error {
				runs++
				return nil
			})
			defer p.Shutdown()
			payload := fmt.Appendf(nil, `{"order":%q}`, strings.Repeat("k", c.bytes-bareField))
			info := r.enqueue(asynq.NewTask("task", payload), asynq.MaxRetry(0))
			r.pass(10 * time.Second)

			if c.runs {
				if runs != 1 {
					t.Errorf("ran %d times, and is %s", runs, r.state(info))
				}
				return
			}

			if events := r.count(EventNoKey); runs > 0 || events != 1 {
				t.Errorf("%d runs, %d events", runs, events)
			}
			failed, err := r.inspector.GetTaskInfo("default", info.ID)
			says := fmt.Sprintf("may have 494 bytes, so that the names of its slots have at most 512; this one has %d", c.bytes)
			if err != nil || failed.State != asynq.TaskStateArchived || !strings.Contains(failed.LastErr, says) {
				t.Errorf("%v, %+v", err, failed)
			}
		})
	}
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
