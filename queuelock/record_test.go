package queuelock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// The memory that a completed task takes on a node: key and value, by the server's own count. The manual adds up to 150
// bytes for its share of the tables of keys and of expiry times. These tables grow in steps.
func TestMemoryOfATask(t *testing.T) {
	race.SkipSweep(t)
	for _, c := range []struct {
		name        string
		opts        []Option
		least, most int
	}{
		{"task", nil, 180, 250},
		// The key's fencing counter is on a quorum at least, and is kept for a shorter time.
		{"task and key", []Option{field("order")}, 270, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := onRedis(t)
			r.serve(setup{opts: c.opts}, func(context.Context, *asynq.Task) error { return nil })

			var before [3]int
			const first, tasks = 100, 1000
			r.complete(0, first) // makes the connections and loads the scripts
			for i := range before {
				before[i] = r.memory(i)
			}
			r.complete(first, first+tasks)

			// Valkey 8.1 keeps keys and values together.
			if strings.Contains(r.servers[0].Client().Info(t.Context(), "server").Val(), "valkey_version:8.1.") {
				c.least -= c.least * 2 / 5
			}

			for i := range before {
				each := (r.memory(i) - before[i]) / tasks
				t.Logf("node %d: %d bytes for each task", i, each)
				if each < c.least || each > c.most {
					t.Errorf("node %d: %d bytes for each task, want %d to %d", i, each, c.least, c.most)
				}
			}

			node := r.servers[0].Client()
			for _, key := range node.Keys(t.Context(), "*5:queue/4:task*").Val() {
				if rest, err := node.PTTL(t.Context(), key).Result(); err != nil || rest < 10*time.Hour-5*time.Minute || rest > 10*time.Hour {
					t.Errorf("a record is kept for %v, %v", rest, err)
				}
			}
		})
	}
}

// complete enqueues a task for each of these orders, and waits until all are done.
func (r *rig) complete(from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		r.enqueue(order(i))
	}
	testutil.Await(r.t, "the queue is empty", func() bool { q, err := r.inspector.GetQueueInfo("default"); return err == nil && q.Size == 0 })
}

// memory returns how many bytes a node uses for the keys of tasks. The server's count of a key includes no share of the
// tables that grow in steps, and no buffers of clients.
func (r *rig) memory(node int) (sum int) {
	r.t.Helper()
	c := r.servers[node].Client()
	var keys []string
	testutil.Await(r.t, "no keys but those of tasks, and the guard", func() bool {
		keys = c.Keys(r.t.Context(), "lockkit:{0}r:*").Val()
		return c.DBSize(r.t.Context()).Val() == int64(len(keys)+1)
	})
	for _, key := range keys {
		sum += int(must(c.MemoryUsage(r.t.Context(), key).Result()))
	}
	return sum
}
