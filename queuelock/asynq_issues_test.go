package queuelock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// Each test does what a thread of asynq's issue list asks for: https://github.com/hibiken/asynq/issues/ and its number.
// docs/recipes.md shows the same code.

// limitEachType lets so many tasks of each type run at a time, on all servers together, and one of any other type.
func limitEachType(locker *core.Locker) (*queuelock.Middleware, error) {
	byType := func(_ context.Context, t *asynq.Task) (string, error) { return core.Key("type", t.Type()), nil }
	atATime := map[string]int{"mail": 3} // one of any other type
	return queuelock.New(locker,
		queuelock.WithKey(byType),
		queuelock.WithConcurrencyFunc(func(_ context.Context, t *asynq.Task) (int, error) { return max(1, atATime[t.Type()]), nil }))
}

// Issue 797 asks for a limit on the active tasks of each type, across workers, such as one of each.
func TestAsynq797LimitOfEachType(t *testing.T) {
	inBubble(t, func(f *fleet) {
		for range 20 {
			f.enqueue(asynq.NewTask("report", nil))
			f.enqueue(asynq.NewTask("export", nil))
			f.enqueue(asynq.NewTask("mail", nil))
		}
		byType := func(_ context.Context, task *asynq.Task) string { return task.Type() }
		f.serve(3, 10, nil, limitEachType, f.counts(byType))
		f.await(60)
		f.wantMost(map[string]int{"report": 1, "export": 1, "mail": 3})
	})
}

// limitEachQueue lets so many tasks of each queue run at a time, on all servers together.
func limitEachQueue(locker *core.Locker) (*queuelock.Middleware, error) {
	byQueue := func(ctx context.Context, _ *asynq.Task) (string, error) {
		queue, _ := asynq.GetQueueName(ctx)
		return core.Key("queue", queue), nil
	}
	atATime := map[string]int{"exports": 2, "mails": 5} // a task of another queue would fail: it has no number
	return queuelock.New(locker,
		queuelock.WithKey(byQueue),
		queuelock.WithConcurrencyFunc(func(ctx context.Context, _ *asynq.Task) (int, error) {
			queue, _ := asynq.GetQueueName(ctx)
			return atATime[queue], nil
		}))
}

// Issue 328 asks for a number for each queue, or each type, that holds for all servers.
func TestAsynq328LimitOfEachQueue(t *testing.T) {
	inBubble(t, func(f *fleet) {
		for range 40 {
			f.enqueue(asynq.NewTask("task", nil), asynq.Queue("exports"))
			f.enqueue(asynq.NewTask("task", nil), asynq.Queue("mails"))
		}
		queues := map[string]int{"exports": 1, "mails": 1}
		f.serve(3, 10, queues, limitEachQueue, f.counts(queueOf))
		f.await(80)
		f.wantMost(map[string]int{"exports": 2, "mails": 5})
	})
}

// limitOneQueue lets one task of queue_one run at a time, and any number of the others.
func limitOneQueue(locker *core.Locker) (*queuelock.Middleware, error) {
	onlyQueueOne := func(ctx context.Context, _ *asynq.Task) (string, error) {
		if queue, _ := asynq.GetQueueName(ctx); queue == "queue_one" {
			return core.Key("queue", queue), nil
		}
		return "", nil // no key, no limit
	}
	return queuelock.New(locker,
		queuelock.WithKey(onlyQueueOne),
		queuelock.WithWaiters(0)) // no worker waits for queue_one
}

// Issue 542 has four workers. One task of queue_one may run at a time, and any number of queue_two: the picture in the
// thread shows one of queue_one and three of queue_two at work.
func TestAsynq542LimitOfOneQueue(t *testing.T) {
	inBubble(t, func(f *fleet) {
		for range 10 {
			f.enqueue(asynq.NewTask("task", nil), asynq.Queue("queue_one"))
		}
		for range 60 {
			f.enqueue(asynq.NewTask("task", nil), asynq.Queue("queue_two"))
		}
		queues := map[string]int{"queue_one": 1, "queue_two": 1}
		f.serve(2, 2, queues, limitOneQueue, f.counts(queueOf))
		f.await(70)
		f.wantMost(map[string]int{"queue_one": 1, "queue_two": 4})
		if f.together["queue_one:1 queue_two:3"] == 0 {
			t.Errorf("never one of queue_one beside three of queue_two: %v", f.together)
		}
	})
}

var errDown = errors.New("the API is down")

// backOff returns a handler that calls an API. When the API is down, the handler gives its task and its permit back for a
// minute.
func backOff(call func(ctx context.Context) error) asynq.HandlerFunc {
	return func(ctx context.Context, _ *asynq.Task) error {
		err := call(ctx)
		if errors.Is(err, errDown) {
			return queuelock.Cooldown(time.Minute) // the permit rests for a minute; the task comes back after that
		}
		return err
	}
}

// Issue 590 asks for a look at the semaphore before a task is dequeued, because a task that finds it taken is queued
// again. queuelock looks after that, too. During an outage of the API, a task is dequeued about once a minute, however,
// and two calls a minute find out whether the API is back. No retry is counted.
func TestAsynq590OutageBehindASemaphore(t *testing.T) {
	race.SkipSweep(t)
	inBubble(t, func(f *fleet) {
		const tasks, minutes = 40, 5
		const outage = minutes * time.Minute
		var infos []*asynq.TaskInfo
		for range tasks {
			infos = append(infos, f.enqueue(asynq.NewTask("task", nil), asynq.Timeout(time.Hour)))
		}
		began := time.Now()
		refused := 0
		call := func(context.Context) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if time.Since(began) < outage {
				refused++
				return errDown
			}
			return nil
		}

		twoCalls := func(locker *core.Locker) (*queuelock.Middleware, error) {
			return queuelock.New(locker, queuelock.WithKey(theAPI), queuelock.WithConcurrency(2))
		}
		work := f.counts(func(context.Context, *asynq.Task) string { return "call" })
		f.serve(2, 10, nil, twoCalls, backOff(func(ctx context.Context) error {
			if err := call(ctx); err != nil {
				return err
			}
			return work(ctx, nil)
		}))
		dequeued := func() int { return f.events.Count("queuelock contended") + f.events.Count("queuelock cooldown") }
		const most = 2 * tasks * minutes
		for time.Since(began) < outage && dequeued() <= most { // a storm is not watched to its end
			time.Sleep(time.Second)
		}
		synctest.Wait()

		t.Logf("in %v: %d deliveries of %d tasks, %d calls", time.Since(began), dequeued(), tasks, refused)
		if n := dequeued(); n > most {
			t.Fatalf("%d deliveries in the outage, more than %d", n, most)
		}
		if refused < minutes || refused > 2*(minutes+1) {
			t.Errorf("%d calls in %v, want about two a minute", refused, outage)
		}
		for _, info := range infos {
			got, err := f.inspector.GetTaskInfo(info.Queue, info.ID)
			if err != nil || got.Retried != 0 {
				t.Fatalf("%+v, %v: a retry was counted", got, err)
			}
		}
		f.await(tasks)
		f.wantMost(map[string]int{"call": 2})
	})
}

// theAPI is the key of all tasks that call one API.
func theAPI(context.Context, *asynq.Task) (string, error) { return "payments-api", nil }

// transfer returns a task for a wallet. Tasks of one wallet run one at a time.
func transfer(chain, address string, payload []byte) *asynq.Task {
	return asynq.NewTaskWithHeaders("transfer", payload, map[string]string{"wallet": core.Key(chain, address)})
}

func byWallet(locker *core.Locker) (*queuelock.Middleware, error) {
	return queuelock.New(locker, queuelock.WithKey(queuelock.ByHeader("wallet")))
}

// Issue 1090 asks for a key that a producer gives to a task. B1 runs beside A1, and A2 waits until A1 is through.
func TestAsynq1090OneTaskPerKey(t *testing.T) {
	inBubble(t, func(f *fleet) {
		for range 10 {
			for _, wallet := range []string{"A", "B", "C"} {
				f.enqueue(transfer("1", wallet, []byte(wallet)))
			}
		}
		f.serve(3, 10, nil, byWallet, f.counts(func(_ context.Context, task *asynq.Task) string { return string(task.Payload()) }))
		f.await(30)
		f.wantMost(map[string]int{"A": 1, "B": 1, "C": 1})
		if f.together["A:1 B:1 C:1"] == 0 {
			t.Errorf("three wallets were never at work together: %v", f.together)
		}
	})
}

// A2 does not wait for the retry of A1, if A1 fails: the recipe says so.
func TestAsynq1090RetryLetsOthersPass(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var order []string
		f.enqueue(transfer("1", "A", []byte("A1")))
		f.serve(1, 4, nil, byWallet, func(_ context.Context, task *asynq.Task) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			order = append(order, string(task.Payload()))
			if len(order) == 1 {
				return errDown
			}
			f.done++
			return nil
		})
		time.Sleep(time.Second)
		synctest.Wait()
		f.enqueue(transfer("1", "A", []byte("A2")))
		f.await(2)
		if got := fmt.Sprint(order); got != "[A1 A2 A1]" {
			t.Error(got)
		}
	})
}

// A fleet is some asynq servers on embedded nodes in a bubble.
type fleet struct {
	t         *testing.T
	queue     *testutil.Node
	locks     *locktest.Locker
	events    locktest.Events
	client    *asynq.Client
	inspector *asynq.Inspector

	mu       sync.Mutex
	running  map[string]int // handlers, by the name that counts gives them
	most     map[string]int // the most at a time
	together map[string]int // how often these ran at a time
	done     int
}

// inBubble runs f on a fleet without servers yet.
func inBubble(t *testing.T, run func(f *fleet)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, queue: testutil.NewNodes(t, 1)[0], running: map[string]int{}, most: map[string]int{}, together: map[string]int{}}
		f.locks = locktest.New(t, core.WithObserver(f.events.Observer()))
		f.client = asynq.NewClientFromRedisClient(f.dial())
		f.inspector = asynq.NewInspectorFromRedisClient(f.dial())
		run(f)
	})
}

func (f *fleet) dial() *redis.Client {
	return f.queue.ClientWith(func(o *redis.Options) { o.PoolSize = 100 })
}

func (f *fleet) enqueue(task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	f.t.Helper()
	info, err := f.client.EnqueueContext(f.t.Context(), task, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return info
}

// serve starts servers with so many workers each. Each is a process of its own, with its own Locker.
func (f *fleet) serve(
	servers, workers int, queues map[string]int,
	middleware func(*core.Locker) (*queuelock.Middleware, error), h asynq.HandlerFunc,
) {
	f.t.Helper()
	for range servers {
		ql, err := middleware(f.locks.Replica().Locker)
		if err != nil {
			f.t.Fatal(err)
		}
		cfg := asynq.Config{Concurrency: workers, Queues: queues, LogLevel: asynq.FatalLevel}
		if err := ql.Configure(&cfg); err != nil {
			f.t.Fatal(err)
		}
		server := asynq.NewServerFromRedisClient(f.dial(), cfg)
		if err := server.Start(ql.Middleware(h)); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(server.Shutdown)
	}
}

// counts returns a handler that takes 200 ms and counts how many of a name run at a time.
func (f *fleet) counts(name func(ctx context.Context, task *asynq.Task) string) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		n := name(ctx, task)
		f.begin(n)
		time.Sleep(200 * time.Millisecond)
		f.end(n)
		return nil
	}
}

func (f *fleet) begin(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[name]++
	f.most[name] = max(f.most[name], f.running[name])

	text := fmt.Sprint(f.running) // map[a:1 b:2]
	f.together[text[len("map["):len(text)-1]]++
}

func (f *fleet) end(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[name]--
	if f.running[name] == 0 {
		delete(f.running, name)
	}
	f.done++
}

// await waits until so many handlers have returned nil.
func (f *fleet) await(tasks int) {
	f.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		synctest.Wait()
		f.mu.Lock()
		done := f.done
		f.mu.Unlock()
		switch {
		case done == tasks:
			return
		case done > tasks || time.Since(began) > 10*time.Minute:
			f.t.Fatalf("%d of %d done after %v", done, tasks, time.Since(began))
		}
	}
}

// wantMost fails the test unless exactly so many of each name ran at a time.
func (f *fleet) wantMost(most map[string]int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !maps.Equal(f.most, most) {
		f.t.Errorf("at a time ran %v, want %v", f.most, most)
	}
}

func queueOf(ctx context.Context, _ *asynq.Task) string {
	queue, _ := asynq.GetQueueName(ctx)
	return queue
}
