package queuelock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// only returns an adjustment that makes a server take tasks from one queue.
func only(queue string) func(*asynq.Config) {
	return func(c *asynq.Config) { c.Queues, c.Concurrency = map[string]int{queue: 1}, 16 }
}

// warm sends many requests, some at once and some while others are under way. Then all nodes know the script for
// requests that travel together, whose first run costs a round trip more. The server also has connections for requests
// that overlap, such as renewals and releases. Making a connection costs a round trip, too.
func (s *process) warm(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			time.Sleep(time.Duration(i/5) * time.Millisecond)
			lease, err := s.locker.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Error(err)
				return
			}
			lease.Release(t.Context())
		})
	}
	all.Wait()
}

// Tasks that wait in place for a key begin within two round trips of the end of the task before, in the order of their
// arrival, on any server.
func TestWaitsInPlaceInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const oneWay, tasks = 10 * time.Millisecond, 4
		var mu sync.Mutex
		var served []string
		var began, ended []time.Time
		var servers []*process

		for _, queue := range []string{"a", "b"} {
			servers = append(servers, r.serve(setup{opts: []Option{field("order"), WithWaiters(8)}, adjust: only(queue)}, func(ctx context.Context, _ *asynq.Task) error {
				id := taskID(ctx)[len("lockkit:1:"):]
				mu.Lock()
				served, began = append(served, id), append(began, time.Now())
				mu.Unlock()
				time.Sleep(half)
				mu.Lock()
				ended = append(ended, time.Now())
				mu.Unlock()
				return nil
			}))
		}

		for _, n := range r.nodes {
			n.Slow(oneWay)
			n.SlowReplies(oneWay)
		}
		for _, s := range servers {
			s.warm(t)
		}

		var want strings.Builder
		for i := range tasks {
			id := fmt.Sprint(i)
			want.WriteString(id)
			r.enqueue(order(1), ID(id), asynq.Queue([]string{"a", "b"}[i%2]))
			r.pass(7 * time.Second) // asynq looks for tasks every 3 s
		}

		r.pass(2 * time.Minute)
		if got := strings.Join(served, ""); got != want.String() || len(ended) != tasks {
			t.Fatalf("served in the order %s, %d have ended", got, len(ended))
		}

		const twoTrips = 4*oneWay + 5*time.Millisecond // with the pause between two batches for a node
		for i := 2; i < tasks; i++ {                   // the first completion also loads its script
			took := began[i].Sub(ended[i-1])
			if took < 0 || took > twoTrips {
				t.Errorf("task %d began %v after the end of the one before", i, took)
			}
		}
		if n := r.count(EventContended); n > 0 {
			t.Errorf("%d were given back", n)
		}
	})
}
