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

// What a completed task takes on a node: key and value, by the server's own count. The manual adds up to 150 bytes for its part
// in the tables of keys and of times, which grow in steps.
func TestMemoryOfATask(t *testing.T) {
	race.SkipSweep(t)
	for _, c := range []struct {
		name        string
		opts        []Option
		least, most int
	}{
		{"task", nil, 180, 250},
		{"task and key", []Option{field("order")}, 270, 400}, // and the fencing counter, on a quorum at least and for less long
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
			if strings.Contains(r.servers[0].Client().Info(t.Context(), "server").Val(), "valkey_version:8.1.") { // which keeps keys and values together
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

// complete has tasks run, each for an order of its own, and waits for that.
func (r *rig) complete(from, to int) {
	r.t.Helper()
	for i := from; i < to; i++ {
		r.enqueue(order(i))
	}
	testutil.Await(r.t, "the queue is empty", func() bool { q, err := r.inspector.GetQueueInfo("default"); return err == nil && q.Size == 0 })
}

// memory is what a node keeps for the keys of tasks, in bytes. The server's own count of one key has no part of tables that
// grow in steps, nor of buffers of clients.
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
