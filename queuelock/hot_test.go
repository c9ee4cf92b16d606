package queuelock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/race"
)

// Tasks of one key run with hardly a pause between them, for any duration and number of tasks.
func TestHotKey(t *testing.T) {
	race.SkipSweep(t)
	for _, c := range []struct {
		tasks, servers, workers int
		work                    time.Duration
	}{
		{60, 2, 10, 100 * time.Millisecond},
		{60, 4, 10, 100 * time.Millisecond},
		{12, 2, 10, 3 * time.Second},
		{300, 2, 10, 10 * time.Millisecond},
		{5, 2, 10, time.Minute}, // longer than a wait in place
		{60, 1, 10, 100 * time.Millisecond},
		{60, 2, 2, 100 * time.Millisecond}, // hardly a worker to spare
	} {
		bubbleOf(t, fmt.Sprintf("%d tasks of %v, %d servers of %d", c.tasks, c.work, c.servers, c.workers), func(t *testing.T, r *rig) {
			for range c.tasks {
				r.enqueue(order(1))
			}
			start := time.Now()
			for range c.servers {
				r.serve(setup{opts: []Option{field("order")}, adjust: defaults(c.workers)}, func(context.Context, *asynq.Task) error {
					return r.ledger.run("hot", func() error { time.Sleep(c.work); return nil })
				})
			}

			ideal := time.Duration(c.tasks) * c.work
			for r.ledger.count(&r.ledger.done, "hot") < c.tasks && time.Since(start) < 10*ideal {
				r.pass(10 * time.Millisecond)
			}

			ratio := float64(time.Since(start)) / float64(ideal)
			t.Logf("%.2f of the time one after the other, %d given back", ratio, r.count(EventContended))
			if n := r.ledger.count(&r.ledger.done, "hot"); n < c.tasks || ratio > 2 || r.ledger.overlaps > 0 {
				t.Errorf("%d done, %d overlaps, %.2f of the time one after the other", n, r.ledger.overlaps, ratio)
			}
		})
	}
}

// Tasks with keys of their own may be enqueued behind tasks of a hot key. They are done no later than without
// queuelock, where workers run the hot tasks side by side.
func TestOthersBesideAHotKey(t *testing.T) {
	race.SkipSweep(t)
	for _, hot := range []int{60, 300} {
		t.Run(fmt.Sprint(hot), func(t *testing.T) {
			t.Parallel()
			took := map[bool]time.Duration{}
			for _, bare := range []bool{true, false} {
				bubbleNow(t, func(_ *testing.T, r *rig) { took[bare] = r.othersTake(hot, bare) })
			}
			if took[false] > took[true] {
				t.Errorf("the others took %v, %v without queuelock", took[false], took[true])
			}
		})
	}
}

// othersTake returns how long the tasks behind the given number of hot tasks take. If bare, the servers run without
// queuelock.
func (r *rig) othersTake(hot int, bare bool) time.Duration {
	r.t.Helper()
	const others = 200
	for range hot {
		r.enqueue(order(0))
	}
	for i := range others {
		r.enqueue(order(i + 1))
	}

	start := time.Now()
	for range 2 {
		r.serve(setup{bare: bare, opts: []Option{field("order")}, adjust: defaults(10)}, func(_ context.Context, task *asynq.Task) error {
			if string(task.Payload()) == `{"order":0}` {
				return r.ledger.run("hot", func() error { time.Sleep(100 * time.Millisecond); return nil })
			}
			return r.ledger.run("others", func() error { time.Sleep(20 * time.Millisecond); return nil })
		})
	}

	for r.ledger.count(&r.ledger.done, "others") < others {
		r.pass(time.Millisecond)
	}
	return time.Since(start)
}

// defaults returns an adjustment to asynq's default intervals and the given number of workers.
func defaults(workers int) func(*asynq.Config) {
	return func(cfg *asynq.Config) {
		cfg.Concurrency, cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = workers, 0, 0
	}
}

// The package document names two settings with which a hot key makes other tasks wait, strict priority and last
// attempts. In both cases a separate server for the hot key helps.
func TestOthersThatWaitBehindAHotKey(t *testing.T) {
	race.SkipSweep(t)
	const hot, others, hold = 200, 20, 100 * time.Millisecond
	strict := func(cfg *asynq.Config) { cfg.StrictPriority = true }
	for name, c := range map[string]struct {
		adjust func(*asynq.Config)
		retry  asynq.Option // of the hot key's tasks
		apart  bool         // the hot key has a server of its own
		waits  bool
	}{
		"by default":                      {nil, asynq.MaxRetry(25), false, false},
		"strict priority":                 {strict, asynq.MaxRetry(25), false, true},
		"last attempts":                   {nil, asynq.MaxRetry(0), false, true},
		"strict priority, its own server": {strict, asynq.MaxRetry(25), true, false},
		"last attempts, its own server":   {nil, asynq.MaxRetry(0), true, false},
	} {
		bubbleOf(t, name, func(t *testing.T, r *rig) {
			for range hot {
				r.enqueue(order(0), asynq.Queue("critical"), c.retry)
			}
			behind := "critical"
			if c.adjust != nil || c.apart {
				behind = "low"
			}
			for i := range others {
				r.enqueue(order(i+1), asynq.Queue(behind))
			}
			serve := func(queues map[string]int) {
				adjust := func(cfg *asynq.Config) {
					defaults(10)(cfg)
					cfg.Queues = queues
					if c.adjust != nil {
						c.adjust(cfg)
					}
				}
				r.serve(setup{opts: []Option{field("order")}, adjust: adjust}, func(_ context.Context, task *asynq.Task) error {
					if string(task.Payload()) == `{"order":0}` {
						return r.ledger.run("hot", func() error { time.Sleep(hold); return nil })
					}
					return r.ledger.run("others", func() error { return nil })
				})
			}

			start := time.Now()
			if c.apart {
				serve(map[string]int{"critical": 6})
				serve(map[string]int{"low": 1})
			} else {
				serve(map[string]int{"critical": 6, "low": 1})
			}
			for r.ledger.count(&r.ledger.done, "others") < others && time.Since(start) < time.Minute {
				r.pass(10 * time.Millisecond)
			}
			took := time.Since(start)
			if waited := took > hot*hold/2; waited != c.waits {
				t.Errorf("the others took %v, beside %d tasks that take %v one after the other", took, hot, hot*hold)
			}
		})
	}
}
