package queuelock

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/race"
)

// One task that takes far longer than the others of its type does not keep those that are given back away for as long.
func TestOneTaskOfItsTypeIsSlow(t *testing.T) {
	race.Campaign(t)
	bubble(t, func(t *testing.T, r *rig) {
		for range 2 {
			r.serve(setup{opts: []Option{field("order")}, adjust: defaults(4)}, func(ctx context.Context, task *asynq.Task) error {
				if taskID(ctx) == "slow" {
					return r.work(ctx, 20*time.Minute)
				}
				return r.ledger.run("hot", func() error { time.Sleep(100 * time.Millisecond); return nil })
			})
		}
		const tasks = 60
		hot := func(n int) {
			for range tasks {
				r.enqueue(order(1))
			}
			start := time.Now()
			for r.ledger.count(&r.ledger.done, "hot") < n {
				r.pass(10 * time.Millisecond)
			}
			if took := time.Since(start); took > 5*tasks*100*time.Millisecond { // servers of four workers have few to spare
				t.Errorf("%d tasks of 100ms took %v", tasks, took)
			}
		}
		hot(tasks)
		r.enqueue(order(2), asynq.TaskID("slow"), asynq.Timeout(time.Hour))
		r.pass(21 * time.Minute)
		hot(2 * tasks)
	})
}
