package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	gocronredislock "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/testutil"
)

// A way pays under a lock.
type way func(context.Context) error

// A release that takes both locks excludes the release before it, which takes the old lock, and the release after it,
// which takes lockkit's. No two replicas pay at a time, whichever two neighboring releases run.
func TestBothReleasesExclude(t *testing.T) {
	server := testutil.NewServers(t, 1)[0]
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	rs := redsync.New(goredis.NewPool(client))
	locks := redislock.New(client)
	rueidisLocks, err := rueidislockOpen(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rueidisLocks.Close)
	locker := lockerOn(t, client)
	other := lockerOn(t, client) // of another process

	for name, ways := range map[string]struct{ before, both, after way }{
		"redsync": {
			func(ctx context.Context) error { return redsyncBefore(ctx, client) },
			func(ctx context.Context) error { return redsyncBoth(ctx, locker, rs) },
			func(ctx context.Context) error { return redsyncAfter(ctx, other) },
		},
		"redislock": {
			func(ctx context.Context) error { return redislockBefore(ctx, client) },
			func(ctx context.Context) error { return redislockBoth(ctx, locker, locks) },
			func(ctx context.Context) error { return redislockAfter(ctx, other) },
		},
		"rueidislock": {
			func(ctx context.Context) error { return rueidislockBefore(ctx, rueidisLocks) },
			func(ctx context.Context) error { return rueidislockBoth(ctx, locker, rueidisLocks) },
			func(ctx context.Context) error { return rueidislockAfter(ctx, other) },
		},
	} {
		t.Run(name+", the release before and both", func(t *testing.T) {
			if n := together(t, ways.before, ways.both); n > 0 {
				t.Errorf("two paid at a time %d times", n)
			}
		})
		t.Run(name+", both and the release after", func(t *testing.T) {
			if n := together(t, ways.both, ways.after); n > 0 {
				t.Errorf("two paid at a time %d times", n)
			}
		})
		t.Run(name+", the release before and after", func(t *testing.T) {
			if !meet(t, ways.before, ways.after) {
				t.Error("lockers of different makes kept each other out: there would be no need for both")
			}
		})
	}
}

// together makes two replicas pay ten times each. It returns how often one of them began to pay while the other one was
// paying.
func together(t *testing.T, ways ...way) (overlaps int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var within, count atomic.Int64
	pay = func(ctx context.Context, _ int) error {
		if within.Add(1) > 1 {
			count.Add(1)
		}
		defer within.Add(-1)
		<-time.After(20 * time.Millisecond) // long enough for the other replica to begin, if it can
		return ctx.Err()
	}
	var all sync.WaitGroup
	for _, w := range ways {
		all.Go(func() {
			for range 10 {
				if err := w(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return count.Load()
}

// meet reports whether two replicas can pay at the same time.
func meet(t *testing.T, ways ...way) (met bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	here := make(chan struct{})
	pay = func(ctx context.Context, _ int) error {
		select {
		case here <- struct{}{}:
		case <-here:
			met = true
		case <-ctx.Done():
		}
		return nil
	}
	var all sync.WaitGroup
	for _, w := range ways {
		all.Go(func() {
			if err := w(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return met
}

func lockerOn(t *testing.T, client redis.UniversalClient) *core.Locker {
	t.Helper()
	locker, err := open(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locker
}

// Nested mutexes and a set of keys exclude others of their make. A set that is not free within the wait is errBusy.
func TestSeveralKeys(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testutil.NewServers(t, 1)[0].Addr()})
	t.Cleanup(func() { client.Close() })
	rs := redsync.New(goredis.NewPool(client))
	locker, other := lockerOn(t, client), lockerOn(t, client)

	nested := func(ctx context.Context) error { return redsyncNested(ctx, rs) }
	if n := together(t, nested, nested); n > 0 {
		t.Errorf("nested mutexes: two paid at a time %d times", n)
	}
	set := func(ctx context.Context) error { return redsyncNestedAfter(ctx, locker) }
	bounded := func(ctx context.Context) error { return redissonMultiAfter(ctx, other) }
	if n := together(t, set, bounded); n > 0 {
		t.Errorf("sets of keys: two paid at a time %d times", n)
	}

	lease, err := locker.Acquire(t.Context(), core.Key("account", "2"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := redissonMultiAfter(ctx, other); !errors.Is(err, errBusy) {
		t.Errorf("with a deadline: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A call with a short deadline returns errBusy while the key is held.
func TestBusy(t *testing.T) {
	client := testutil.NewServers(t, 1)[0].Client()
	locker := lockerOn(t, client)
	pay = func(context.Context, int) error { return nil }
	lease, err := locker.Acquire(t.Context(), core.Key("invoice", "42"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := redissonAfter(ctx, locker); !errors.Is(err, errBusy) {
		t.Errorf("with a deadline: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := redissonAfter(t.Context(), locker); err != nil {
		t.Error(err)
	}
	var token uint64
	if err := redissonFencedAfter(t.Context(), locker, func(_ context.Context, n uint64) error { token = n; return nil }); err != nil || token == 0 {
		t.Errorf("token %d, %v", token, err)
	}
}

// A lease that was acquired with MaxWait ends with the context of its acquisition. A detached lease outlives that
// context.
func TestWhatEndsTheLease(t *testing.T) {
	locker := lockerOn(t, testutil.NewServers(t, 1)[0].Client())
	for _, tt := range []struct {
		name    string
		acquire func(context.Context, *core.Locker) (*core.Lease, error)
		ends    bool
	}{{"MaxWait", waitAfter, true}, {"Detached", detachedAfter, false}} {
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := tt.acquire(ctx, locker)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if ended := lease.Context().Err() != nil; ended != tt.ends {
			t.Errorf("%s: the lease has ended with the context that asked for it: %v", tt.name, ended)
		}
		if err := lease.Release(ctx); err != nil && !tt.ends {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// The job runs with the old locker, with both lockers, and with cronlock.
func TestGocron(t *testing.T) {
	client := testutil.NewServers(t, 1)[0].Client()
	locker := lockerOn(t, client)
	second := cronlock.Every(time.Second)
	for name, add := range map[string]func(invoices func(context.Context) error) (gocron.Scheduler, error){
		"before": func(invoices func(context.Context) error) (gocron.Scheduler, error) {
			return gocronBefore(client, gocron.CronJob("* * * * * *", true), invoices)
		},
		"both": func(invoices func(context.Context) error) (gocron.Scheduler, error) {
			scheduler, err := gocron.NewScheduler()
			if err != nil {
				return nil, err
			}
			cron, err := cronlock.New(locker, "both")
			if err != nil {
				return nil, err
			}
			locks, err := gocronredislock.NewRedisLocker(client, gocronredislock.WithTries(1))
			if err != nil {
				return nil, err
			}
			return scheduler, gocronBoth(scheduler, cron, locks, second, invoices)
		},
		"after": func(invoices func(context.Context) error) (gocron.Scheduler, error) {
			return gocronAfter(locker, second, invoices)
		},
	} {
		ran := make(chan struct{}, 1)
		scheduler, err := add(func(context.Context) error {
			select {
			case ran <- struct{}{}:
			default:
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		scheduler.Start()
		testutil.Receive(t, ran)
		if err := scheduler.Shutdown(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The second of two tasks with one identity is not enqueued, whichever releases enqueue them. A completed task does not
// run again.
func TestAsynq(t *testing.T) {
	servers := testutil.NewServers(t, 2)
	queue := redis.NewClient(&redis.Options{Addr: servers[0].Addr()})
	t.Cleanup(func() { queue.Close() })
	client := asynq.NewClientFromRedisClient(queue)
	ql, err := asynqMiddleware(lockerOn(t, servers[1].Client()))
	if err != nil {
		t.Fatal(err)
	}
	size := func() int {
		info, err := asynq.NewInspectorFromRedisClient(queue).GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size
	}
	payment := func(i int) charge { return charge{json.Number(fmt.Sprint(i)), "42"} }
	enqueue := map[string]func(charge) error{
		"before": func(c charge) error { return asynqBefore(t.Context(), client, c) },
		"both":   func(c charge) error { return asynqBoth(t.Context(), client, c) },
		"after":  func(c charge) error { return asynqAfter(t.Context(), client, c) },
	}
	for i, releases := range [][]string{{"before", "before"}, {"before", "both"}, {"both", "before"}, {"both", "both"}, {"both", "after"}, {"after", "both"}, {"after", "after"}} {
		for _, release := range releases {
			if err := enqueue[release](payment(i)); err != nil {
				t.Errorf("%v: %v", releases, err)
			}
		}
		if n := size(); n != i+1 {
			t.Fatalf("%v: %d tasks, want %d", releases, n, i+1)
		}
	}

	charged := make(chan string, 100)
	cfg := asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}
	if err := ql.Configure(&cfg); err != nil {
		t.Fatal(err)
	}
	server := asynq.NewServerFromRedisClient(queue, cfg)
	err = asynqServe(server, ql, func(_ context.Context, task *asynq.Task) error {
		charged <- string(task.Payload())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	for range 7 {
		testutil.Receive(t, charged)
	}
	testutil.Await(t, "an empty queue", func() bool { return size() == 0 })
	if err := asynqAfter(t.Context(), client, payment(6)); err != nil {
		t.Error(err)
	}
	testutil.Await(t, "an empty queue", func() bool { return size() == 0 })
	if len(charged) > 0 {
		t.Errorf("one that is completed runs again: %s", <-charged)
	}
}

// At most three pay at a time.
func TestSemaphore(t *testing.T) {
	locker := lockerOn(t, testutil.NewServers(t, 1)[0].Client())
	limit, err := semaphoreNew(locker)
	if err != nil {
		t.Fatal(err)
	}
	arrived, leave := make(chan struct{}), make(chan struct{})
	pay = func(context.Context, int) error {
		arrived <- struct{}{}
		<-leave
		return nil
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := semaphoreAfter(t.Context(), limit); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		testutil.Receive(t, arrived)
	}
	if err := limit.TryDo(t.Context(), "payments-api", func(context.Context) error { return nil }); !errors.Is(err, core.ErrHeld) {
		t.Errorf("a fourth: %v", err)
	}
	if err := semaphorePermitAfter(t.Context(), limit); !errors.Is(err, errBusy) {
		t.Errorf("a fourth permit: %v", err)
	}
	close(leave)
	all.Wait()

	// Each permit comes back, so there are more calls than permits, one after the other.
	for range 4 {
		arrived = make(chan struct{}, 1)
		if err := semaphorePermitAfter(t.Context(), limit); err != nil {
			t.Error(err)
		}
	}
}
