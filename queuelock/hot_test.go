package queuelock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// Tasks of one key run with hardly a pause between them, whatever they take and however many they are.
func TestHotKey(t *testing.T) {
	for _, c := range []struct {
		tasks, servers, workers int
		work                    time.Duration
	}{
		{60, 2, 10, 100 * time.Millisecond},
		{60, 4, 10, 100 * time.Millisecond},
		{60, 1, 10, 100 * time.Millisecond},
		{60, 2, 2, 100 * time.Millisecond},
		{1000, 2, 10, 10 * time.Millisecond},
		{1000, 4, 10, 100 * time.Millisecond},
		{12, 2, 10, 3 * time.Second},
		{12, 2, 10, time.Minute},
	} {
		t.Run(fmt.Sprintf("%d tasks of %v, %d servers of %d", c.tasks, c.work, c.servers, c.workers), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				for range c.tasks {
					r.enqueue(order(1))
				}
				start := time.Now()
				for range c.servers {
					r.serve(setup{opts: []Option{field("order")}, adjust: func(cfg *asynq.Config) { cfg.Concurrency, cfg.TaskCheckInterval = c.workers, 0 }},
						func(context.Context, *asynq.Task) error {
							return r.ledger.run("hot", func() error { time.Sleep(c.work); return nil })
						})
				}
				ideal := time.Duration(c.tasks) * c.work
				for r.ledger.count(&r.ledger.done, "hot") < c.tasks && time.Since(start) < 4*ideal {
					r.pass(10 * time.Millisecond)
				}
				took := time.Since(start)
				t.Logf("%s: %v, %.2f of the ideal, done %d, given back %d, overlaps %d", t.Name(), took, float64(took)/float64(ideal), r.ledger.count(&r.ledger.done, "hot"), r.count(EventContended), r.ledger.overlaps)
			})
		})
	}
}
