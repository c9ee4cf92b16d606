package queuelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

func field(name string) Option { return WithKey(ByPayloadField(name)) }

func order(n int) *asynq.Task { return asynq.NewTask("task", fmt.Appendf(nil, `{"order":%d}`, n)) }

// told is what a user's own functions of the configuration hear.
type told struct {
	mu                       sync.Mutex
	handled, judged, delayed []string
}

func (o *told) note(list *[]string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*list = append(*list, err.Error())
}

func (o *told) adjust(cfg *asynq.Config) {
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { o.note(&o.handled, err) })
	cfg.IsFailure = func(err error) bool { o.note(&o.judged, err); return true }
	cfg.RetryDelayFunc = func(n int, err error, _ *asynq.Task) time.Duration {
		if !errors.Is(err, context.DeadlineExceeded) {
			o.note(&o.delayed, err)
		}
		return 10 * time.Second
	}
}

// A task whose key is held for long is given back again and again: without a retry, without a word to the
// user's functions, no more often than ten times a second per worker, and in the end it runs.
func TestContentionBurnsNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		back := r.take(1)
		var user told
		adjust := func(cfg *asynq.Config) {
			user.adjust(cfg)
			cfg.Concurrency, cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = 1, time.Millisecond, time.Millisecond
		}
		r.serve(setup{adjust: adjust, opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
			if n, _ := asynq.GetRetryCount(ctx); n != 0 {
				t.Errorf("retried %d times", n)
			}
			return r.work(ctx, time.Second)
		})
		info := r.enqueue(order(1), asynq.MaxRetry(1))
		r.pass(10 * time.Second)
		if n := r.count(EventContended); n < 80 || n > 110 { // ten a second, and what the limiter lets through at once
			t.Errorf("given back %d times in 10s", n)
		}
		if got, _ := r.inspector.GetTaskInfo(info.Queue, info.ID); got.Retried != 0 || !strings.Contains(got.LastErr, "delivered again in 0s") {
			t.Errorf("%+v", got)
		}
		back()
		r.pass(5 * time.Second)
		if r.ledger.done[info.ID] != 1 || r.state(info) != "gone" {
			t.Errorf("%v, %s", r.ledger.done, r.state(info))
		}
		if len(user.handled)+len(user.judged)+len(user.delayed) > 0 {
			t.Errorf("the user's functions were told: %+v", &user)
		}
	})
}

// A holder that is soon done is waited for in place.
func TestWaitsInPlaceBriefly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
			return r.work(ctx, 2*time.Second)
		})
		start := time.Now()
		r.enqueue(order(1), asynq.TaskID("1"))
		r.enqueue(order(1), asynq.TaskID("2"))
		for r.ledger.count(&r.ledger.done, "1") == 0 || r.ledger.count(&r.ledger.done, "2") == 0 {
			r.pass(100 * time.Millisecond)
		}
		if took := time.Since(start); took > 12*time.Second || r.count(EventContended) > 0 {
			t.Errorf("took %v, events %v", took, r.events.Counts())
		}
	})
}

// Tasks of one entity run one at a time across types, queues and servers, with growing tokens; others are
// not held up by them.
func TestOneAtATimePerKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		w := &keyedWork{t: t, r: r, start: time.Now(), last: map[string]uint64{}}
		for range 3 {
			r.serve(setup{opts: []Option{field("order")}, adjust: func(c *asynq.Config) {
				c.Queues = map[string]int{"high": 2, "low": 1}
			}}, w.handle)
		}
		const n = 60
		for i := range n {
			queue := []string{"high", "low"}[i%2]
			r.enqueue(asynq.NewTask("task:"+queue, fmt.Appendf(nil, `{"order":%d}`, i%2)), asynq.Queue(queue))
		}
		for i := range 10 {
			r.enqueue(asynq.NewTask("task:side", fmt.Appendf(nil, `{"order":"side%d"}`, i)), asynq.Queue("low"))
		}
		r.pass(5 * time.Minute)
		if r.ledger.overlaps > 0 || len(w.last) != 2 {
			t.Errorf("overlaps %d, keys %v", r.ledger.overlaps, w.last)
		}
		for _, key := range []string{`{"order":0}`, `{"order":1}`} {
			if got := r.ledger.done[key]; got != n/2 {
				t.Errorf("%s: %d of %d", key, got, n/2)
			}
		}
		if len(w.sides) != 10 || slices.Max(w.sides) > 20*time.Second {
			t.Errorf("the other tasks ran after %v", w.sides)
		}
	})
}

// keyedWork is a handler of tasks of a few keys, and of side tasks of keys of their own.
type keyedWork struct {
	t     *testing.T
	r     *rig
	start time.Time
	mu    sync.Mutex
	last  map[string]uint64 // token by key
	sides []time.Duration   // when they ran
}

func (w *keyedWork) handle(ctx context.Context, task *asynq.Task) error {
	if strings.HasPrefix(task.Type(), "task:side") {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sides = append(w.sides, time.Since(w.start))
		return nil
	}
	return w.r.ledger.run(string(task.Payload()), func() error {
		w.note(ctx)
		time.Sleep(300 * time.Millisecond)
		return nil
	})
}

func (w *keyedWork) note(ctx context.Context) {
	e, ok := FromContext(ctx)
	lease, held := core.FromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ok || !held || lease.FencingToken() != e.FencingToken || e.FencingToken <= w.last[lease.Key()] {
		w.t.Errorf("%+v %v, lease %v, last token %d", e, ok, held, w.last[lease.Key()])
	}
	w.last[lease.Key()] = e.FencingToken
}

// No more tasks wait in place than there are waiting places: a quarter of the workers, rounded up, and never all of them.
// So a hot key does not stop the others.
func TestWaitingPlaces(t *testing.T) {
	for _, c := range []struct {
		workers int
		opts    []Option
		want    int
	}{
		{1, nil, 0}, {2, nil, 1}, {3, nil, 1}, {4, nil, 1}, {5, nil, 2}, {8, nil, 2}, {9, nil, 3},
		{1, []Option{WithWaiters(1)}, 0}, {3, []Option{WithWaiters(9)}, 2}, {3, []Option{WithWaiters(0)}, 0}, {8, []Option{WithWaiters(5)}, 5},
	} {
		t.Run(fmt.Sprintf("%d workers, %d places", c.workers, c.want), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				back, start := r.take(1), time.Now()
				ran := time.Hour
				r.serve(setup{opts: append(c.opts, field("order")), adjust: func(cfg *asynq.Config) { cfg.Concurrency = c.workers }},
					func(ctx context.Context, task *asynq.Task) error {
						if string(task.Payload()) == `{"order":2}` {
							ran = time.Since(start)
						}
						return r.ledger.run(string(task.Payload()), func() error { time.Sleep(time.Second); return nil })
					})
				const hot = 12
				for range hot {
					r.enqueue(order(1))
				}
				r.enqueue(order(2))
				for range 60 {
					if r.pass(time.Second); r.events.Running(core.OpAcquire) > c.want {
						t.Fatalf("%d wait in place", r.events.Running(core.OpAcquire))
					}
				}
				if n := r.events.Running(core.OpAcquire); n != c.want || ran > 20*time.Second || r.count(EventContended) < hot-c.want {
					t.Errorf("%d wait in place, the other task ran after %v, %v", n, ran, r.events.Counts())
				}
				back()
				r.pass(5 * time.Minute)
				if r.ledger.done[`{"order":1}`] != hot || r.ledger.overlaps > 0 {
					t.Errorf("%+v", &r.ledger)
				}
			})
		})
	}
}

// asynq archives a task on its last attempt whatever the error: so it waits in place.
func TestLastAttemptWaitsInPlace(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
			return r.work(ctx, time.Minute)
		})
		first := r.enqueue(order(1), asynq.MaxRetry(0))
		r.begun(first)
		second := r.enqueue(order(1), asynq.MaxRetry(0))
		r.pass(4 * time.Minute)
		for _, info := range []*asynq.TaskInfo{first, second} {
			if r.ledger.done[info.ID] != 1 || r.state(info) != "gone" {
				t.Errorf("done %d times, is %s", r.ledger.done[info.ID], r.state(info))
			}
		}
		if r.ledger.overlaps > 0 || len(user.handled) > 0 || r.count(EventContended) > 0 {
			t.Errorf("overlaps %d, told %+v, events %v", r.ledger.overlaps, &user, r.events.Counts())
		}
	})
}

// When its deadline comes, asynq archives it: with the reason, loudly, and fit to be run from there.
func TestLastAttemptArchivedUnrun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
			return r.work(ctx, 90*time.Second)
		})
		r.begun(r.enqueue(order(1)))
		second := r.enqueue(order(1), asynq.MaxRetry(0), asynq.Timeout(40*time.Second))
		r.pass(time.Minute)
		got, err := r.inspector.GetTaskInfo(second.Queue, second.ID)
		if err != nil || got.State != asynq.TaskStateArchived || !strings.HasPrefix(got.LastErr, `queuelock: not run: lockkit: acquire "5:order/1:1": held by another holder`) {
			t.Fatalf("%+v, %v", got, err)
		}
		if len(user.handled) != 1 || r.count(EventArchived) != 1 || r.logs.count("ERROR queuelock: a task could not be run") != 1 {
			t.Errorf("told %+v, events %v\n%s", &user, r.events.Counts(), &r.logs)
		}
		r.pass(time.Minute)
		if err := r.inspector.RunTask(second.Queue, second.ID); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * time.Minute) // it does not look at its deadline
		if r.ledger.done[second.ID] != 1 || r.ledger.overlaps != 0 {
			t.Errorf("%+v", &r.ledger)
		}
	})
}

// A server that shuts down puts the task that waits back, last attempt or not; also when its locker was
// closed too early.
func TestShutdownWhileWaiting(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("locker closed=%v", closed), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				handler := func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, time.Minute) }
				opts := []Option{field("order")}
				r.serve(setup{opts: opts}, handler)
				r.begun(r.enqueue(order(1)))
				first := r.serve(setup{opts: opts, adjust: func(c *asynq.Config) { c.Queues = map[string]int{"other": 1} }}, handler)
				info := r.enqueue(order(1), asynq.MaxRetry(0), asynq.Queue("other"))
				r.pass(5 * time.Second)
				if closed {
					if err := first.locker.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				first.Shutdown()
				synctest.Wait()
				if s := r.state(info); s != "pending" {
					t.Fatalf("is %s", s)
				}
				r.serve(setup{opts: opts, adjust: func(c *asynq.Config) { c.Queues = map[string]int{"other": 1} }}, handler)
				r.pass(150 * time.Second)
				if r.ledger.done[info.ID] != 1 || r.ledger.overlaps > 0 {
					t.Errorf("%+v", &r.ledger)
				}
			})
		})
	}
}

// Without a quorum nothing runs, and nothing is burnt; later everything runs.
func TestLocksOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, n := range r.nodes[:2] {
			n.Down()
		}
		var user told
		r.serve(setup{adjust: user.adjust}, func(ctx context.Context, _ *asynq.Task) error {
			if n, _ := asynq.GetRetryCount(ctx); n != 0 {
				t.Errorf("retried %d times", n)
			}
			return r.work(ctx, time.Second)
		})
		infos := []*asynq.TaskInfo{r.enqueue(order(1)), r.enqueue(order(2), asynq.MaxRetry(0))}
		r.pass(2 * time.Minute)
		if len(r.ledger.runs) > 0 {
			t.Fatal("a task ran without a lease")
		}
		if len(user.handled)+len(user.judged) > 0 || r.count(EventUnavailable) == 0 {
			t.Errorf("told %+v, events %v", &user, r.events.Counts())
		}
		for _, n := range r.nodes {
			n.Up()
		}
		r.pass(2 * time.Minute)
		for _, info := range infos {
			if r.ledger.done[info.ID] != 1 || r.state(info) != "gone" {
				t.Errorf("done %d times, is %s", r.ledger.done[info.ID], r.state(info))
			}
		}
	})
}

// A task costs one request to take its key and one to complete it, on each node, and as many for a key of
// what it works on.
func TestRequestsPerTask(t *testing.T) {
	for n, opts := range map[int][]Option{2: nil, 4: {field("order")}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{opts: opts}, func(context.Context, *asynq.Task) error {
					time.Sleep(time.Millisecond) // a task that is done at once spares nodes that have not been asked yet
					return nil
				})
				r.enqueue(order(0)) // loads the scripts
				r.pass(10 * time.Second)
				asked := r.countScripts()
				for i := range 10 { // one by one: what comes together travels together
					r.enqueue(order(i))
					r.pass(2 * time.Second)
				}
				for i, got := range asked() {
					if got > int64(10*n) || got < int64(5*n) { // two may travel together
						t.Errorf("node %d: %d requests for 10 tasks, want at most %d", i, got, 10*n)
					}
				}
			})
		})
	}
}

// countScripts counts the scripts that each node runs, but for touches of idle nodes, until it is asked how many.
func (r *rig) countScripts() (asked func() []int64) {
	counts := make([]atomic.Int64, len(r.nodes))
	for i, node := range r.nodes {
		node.OnRequest(func(args []string) testutil.Action {
			if args[0] == "EVALSHA" && !strings.HasSuffix(args[3], "}p") {
				counts[i].Add(1)
			}
			return testutil.Action{}
		})
	}
	return func() (got []int64) {
		for i, node := range r.nodes {
			node.OnRequest(nil)
			got = append(got, counts[i].Load())
		}
		return got
	}
}

// A duplicate of a completed task is told so at once, however busy its entity is.
func TestDuplicateDoesNotWaitForTheEntity(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		r.enqueue(order(1), ID("t"))
		r.pass(10 * time.Second)
		lease, err := r.locker().Acquire(t.Context(), core.Key("order", "1"))
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(context.Background())
		r.enqueue(order(1), ID("t"), asynq.MaxRetry(0))
		r.pass(10 * time.Second)
		if r.count(EventDuplicate) != 1 || r.ledger.runs[theID] != 1 {
			t.Errorf("events %v, runs %v", r.events.Counts(), r.ledger.runs)
		}
	})
}
