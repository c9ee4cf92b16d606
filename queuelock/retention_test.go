package queuelock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// keptUntil returns until when the nodes know that a key is completed: the first to forget it.
func (r *rig) keptUntil(key string) time.Time {
	r.t.Helper()
	var first time.Time
	for _, n := range r.nodes {
		stored, err := n.Exec("GET", "lockkit:{0}r:"+key)
		value, _ := stored.(string)
		res, bad := testutil.ParseResource(value)
		if err != nil || bad != nil || res.Record == nil {
			r.t.Fatalf("no record: %v, %v", err, bad)
		}
		if until := time.UnixMilli(res.Record.Kept); first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// A completion is known for the retention, and for as long as asynq may take to deliver the task again: what
// RetryDelayFunc says at the retry count of the delivery that completed it, and three minutes.
func TestRetentionFollowsTheRetryDelay(t *testing.T) {
	hours := func(n int, err error, _ *asynq.Task) time.Duration {
		if errors.Is(err, asynq.ErrLeaseExpired) {
			return time.Duration(n) * time.Hour
		}
		return time.Second // of the handler's own failures
	}
	soon := func(_ int, err error, _ *asynq.Task) time.Duration {
		if errors.Is(err, asynq.ErrLeaseExpired) {
			return -time.Hour // no use
		}
		return time.Second
	}
	never := func(int, error, *asynq.Task) time.Duration { return math.MaxInt64 }
	exact := func(d time.Duration) [2]time.Duration { return [2]time.Duration{d - time.Millisecond, d + time.Second} } // nodes count in ms
	for _, c := range []struct {
		name    string
		delay   asynq.RetryDelayFunc
		opts    []Option
		failing int
		want    [2]time.Duration
	}{
		{"none has failed", hours, nil, 0, exact(8*time.Hour + 3*time.Minute)},
		{"one", hours, nil, 1, exact(9*time.Hour + 3*time.Minute)},
		{"five", hours, nil, 5, exact(13*time.Hour + 3*time.Minute)},
		{"a retention of its own", hours, []Option{WithRetention(time.Minute)}, 2, exact(2*time.Hour + 4*time.Minute)},
		{"of its type", hours, []Option{ForType("task", WithRetention(time.Hour))}, 2, exact(3*time.Hour + 3*time.Minute)},
		{"a delay that is for ever", never, nil, 0, exact(maxRetention)},
		{"the longest", soon, []Option{WithRetention(maxRetention)}, 0, exact(maxRetention)},
		{"a delay of less than nothing", soon, nil, 2, exact(8*time.Hour + 3*time.Minute)},
		{"asynq's delay", nil, nil, 0, [2]time.Duration{8*time.Hour + 3*time.Minute + 13*time.Second, 8*time.Hour + 4*time.Minute}},
		{"asynq's delay, later", nil, nil, 8, [2]time.Duration{8*time.Hour + 3*time.Minute + 4096*time.Second, 8*time.Hour + 3*time.Minute + 4400*time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				done := r.completesAfter(c.failing, setup{opts: c.opts, adjust: func(cfg *asynq.Config) { cfg.RetryDelayFunc = c.delay }})
				r.pass(time.Second)
				got := r.keptUntil(core.Key("queue", "task", "default", "t")).Sub(done)
				if !between(got, c.want[0], c.want[1]) {
					t.Errorf("kept for %v, want %v", got, c.want)
				}
			})
		})
	}
}

// completesAfter has task t run on a server of its own, and returns when its handler has returned nil, after so many failures.
func (r *rig) completesAfter(failures int, s setup) time.Time {
	r.t.Helper()
	done := make(chan time.Time, 1)
	r.serve(s, func(ctx context.Context, _ *asynq.Task) error {
		if n, _ := asynq.GetRetryCount(ctx); n < failures {
			return fmt.Errorf("failure %d", n)
		}
		done <- time.Now()
		return nil
	})
	r.enqueue(order(1), asynq.TaskID("t"))
	select {
	case at := <-done:
		return at
	case <-time.After(6 * time.Hour):
		r.t.Fatal("not done")
		return time.Time{}
	}
}

// What comes within the retention is a duplicate, what comes later runs again, as the documentation says.
func TestRetentionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		now := func(cfg *asynq.Config) {
			cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
		}
		r.serve(setup{adjust: now, opts: []Option{WithRetention(10 * time.Minute)}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		for i, want := range []int{1, 1, 2} { // a duplicate does not make it last longer
			r.enqueue(order(1), asynq.TaskID("t"))
			r.pass(12*time.Minute - time.Duration(i)*3*time.Minute)
			if n := r.ledger.runs["t"]; n != want {
				t.Errorf("delivery %d: %d runs", i, n)
			}
		}
	})
}

// What completed tasks add to what a node has allocated, each: keys and values, and their part in the tables of keys and of
// times. The manual has the figures, and is not to promise less.
func TestMemoryOfATask(t *testing.T) {
	race.Campaign(t)
	for _, c := range []struct {
		name        string
		opts        []Option
		least, most int
	}{
		{"task", nil, 250, 400},
		{"task and key", []Option{field("order")}, 350, 600}, // and the fencing counter, on a quorum at least and for less long
	} {
		t.Run(c.name, func(t *testing.T) {
			r := onRedis(t)
			r.serve(setup{opts: c.opts}, func(context.Context, *asynq.Task) error { return nil })
			var before [3]int
			const first, tasks = 100, 1000
			r.complete(0, first) // connections, scripts
			for i := range before {
				before[i] = r.memory(i)
			}
			r.complete(first, first+tasks)
			for i := range before {
				each := (r.memory(i) - before[i]) / tasks
				t.Logf("node %d: %d bytes for each task", i, each)
				if each < c.least || each > c.most {
					t.Errorf("node %d: %d bytes for each task, want %d to %d", i, each, c.least, c.most)
				}
			}
		})
	}
}

// complete has tasks run, each for an order of its own, and waits for that.
func (r *rig) complete(from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		r.enqueue(order(i))
	}
	testutil.Await(r.t, "the queue is empty", func() bool { q, err := r.inspector.GetQueueInfo("default"); return err == nil && q.Size == 0 })
}

// memory returns what a node has allocated but for its clients, once what only lives for seconds is gone.
func (r *rig) memory(node int) int {
	r.t.Helper()
	c := r.servers[node].Client()
	testutil.Await(r.t, "no keys but those of tasks, and the guard", func() bool {
		return c.DBSize(r.t.Context()).Val() == int64(len(c.Keys(r.t.Context(), "lockkit:{0}r:*").Val())+1)
	})
	var used, clients int
	info := c.Info(r.t.Context(), "memory").Val()
	for line := range strings.Lines(info) {
		fmt.Sscanf(line, "used_memory:%d", &used)
	}
	for field := range strings.FieldsSeq(c.ClientList(r.t.Context()).Val()) {
		var size int
		if n, _ := fmt.Sscanf(field, "tot-mem=%d", &size); n == 1 {
			clients += size
		}
	}
	if used == 0 {
		r.t.Fatal(info)
	}
	return used - clients
}
