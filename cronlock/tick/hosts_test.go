package tick_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/cronlock/tick"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// ahead are the clocks of three replicas.
var ahead = []time.Duration{0, 350 * time.Millisecond, -5 * time.Second}

// runs are those of a job on all replicas.
type runs struct {
	mu sync.Mutex
	of map[time.Time]int
}

func (r *runs) work(ctx context.Context) error {
	run, _ := tick.FromContext(ctx)
	defer time.Sleep(time.Second) // so that runs meet each other
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[time.Time]int{}
	}
	r.of[run.Tick.UTC()]++
	return nil
}

// once checks that n ticks ran from the first on, a minute apart, and each once.
func (r *runs) once(t *testing.T, first time.Time, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		at := first.UTC().Add(time.Duration(i) * time.Minute)
		if r.of[at] != 1 {
			t.Errorf("tick %v ran %d times", at, r.of[at])
		}
	}
	if len(r.of) != n {
		t.Errorf("%d ticks ran: %v", len(r.of), r.of)
	}
}

// service starts one of a process of its own.
func service(t *testing.T, locks *locktest.Locker, ahead time.Duration) *tick.Service {
	t.Helper()
	s, err := tick.New(locks.Replica().Locker, "billing", tick.WithClock(func() time.Time { return time.Now().Add(ahead) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// robfig/cron on three replicas.
func TestCronOnThreeReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, ran := locktest.New(t), runs{}
		time.Sleep(90 * time.Second)
		first := time.Now().Truncate(time.Minute).Add(time.Minute)
		for i := range 3 {
			s := service(t, locks, ahead[i]) // robfig/cron itself goes by the machine's clock
			c, err := withCron(t.Context(), s, "CRON_TZ=UTC * * * * *", ran.work)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { <-c.Stop().Done() })
		}
		time.Sleep(10 * time.Minute)
		ran.once(t, first.Add(-time.Minute), 11) // the one of half a minute ago is caught up
	})
}

// asynq's scheduler and a server on three replicas: each enqueues each tick, and the tasks wait in the queue for a while.
func TestAsynqOnThreeReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, queue, ran := locktest.New(t), testutil.NewNodes(t, 1)[0], runs{}
		var enqueued atomic.Int64
		time.Sleep(90 * time.Second)
		first := time.Now().Truncate(time.Minute).Add(time.Minute)
		var servers []func()
		for i := range 3 {
			servers = append(servers, withAsynq(t, service(t, locks, ahead[i]), queue, ran.work, &enqueued))
		}
		time.Sleep(2*time.Minute + 30*time.Second)
		for _, start := range servers {
			start()
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		ran.once(t, first, 13)
		if n := enqueued.Load(); n != 3*13 {
			t.Errorf("%d tasks were enqueued", n)
		}
	})
}

// withAsynq starts the scheduler of a replica. start starts its server.
func withAsynq(t *testing.T, s *tick.Service, queue *testutil.Node, work func(context.Context) error, enqueued *atomic.Int64) (start func()) {
	t.Helper()
	schedule, err := cron.ParseStandard("CRON_TZ=UTC * * * * *")
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Add("invoices", work, tick.WithSchedule(schedule), tick.WithMisfireGrace(10*time.Minute), tick.WithOverlap(tick.Allow))
	if err != nil {
		t.Fatal(err)
	}
	dial := func() redis.UniversalClient {
		return queue.ClientWith(func(o *redis.Options) { o.PoolSize = 500 })
	}
	scheduler := asynq.NewSchedulerFromRedisClient(dial(), &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, PreEnqueueFunc: named(job),
		PostEnqueueFunc: func(_ *asynq.TaskInfo, err error) {
			if enqueued.Add(1); err != nil {
				t.Error(err)
			}
		}})
	if _, err := scheduler.Register("* * * * *", asynq.NewTaskWithHeaders("invoices", nil, map[string]string{"tick": ""})); err != nil {
		t.Fatal(err)
	}
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Shutdown)
	return func() {
		server := asynq.NewServerFromRedisClient(dial(), asynq.Config{Concurrency: 4, TaskCheckInterval: 3 * time.Second, LogLevel: asynq.FatalLevel})
		mux := asynq.NewServeMux()
		mux.Handle("invoices", handler(job))
		if err := server.Start(mux); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
	}
}
