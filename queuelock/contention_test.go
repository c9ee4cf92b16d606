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
		if !errors.Is(err, asynq.ErrLeaseExpired) && !errors.Is(err, context.DeadlineExceeded) { // not the check of the retention
			o.note(&o.delayed, err)
		}
		return 10 * time.Second
	}
}

// A task whose key is held for long is given back again and again: without a retry, without a word to the
// user's functions, and in the end it runs.
func TestContentionBurnsNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.locks = r.locks.Replica(core.TTL(time.Minute)) // few renewals in the hours that pass
		lease, err := r.locker().Acquire(t.Context(), core.Key("order", "1"))
		if err != nil {
			t.Fatal(err)
		}
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order"), WithWait(time.Second)}}, func(ctx context.Context, _ *asynq.Task) error {
			if n, _ := asynq.GetRetryCount(ctx); n != 0 {
				t.Errorf("retried %d times", n)
			}
			return r.work(ctx, time.Second)
		})
		info := r.enqueue(order(1), asynq.MaxRetry(1))
		for r.count(EventContended) < 50 {
			r.pass(10 * time.Second)
			if s := r.state(info); s == "archived" || s == "gone" || s == "completed" {
				t.Fatal(s)
			}
		}
		if got, _ := r.inspector.GetTaskInfo(info.Queue, info.ID); got.Retried != 0 || !strings.Contains(got.LastErr, "delivered again") && got.State != asynq.TaskStateActive {
			t.Errorf("after 50 contentions: %+v", got)
		}
		lease.Release(t.Context())
		r.pass(90 * time.Second) // while nothing is known of those before it, it looks once a minute
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
		r.serve(setup{opts: []Option{field("order"), WithWait(3 * time.Second)}}, func(ctx context.Context, _ *asynq.Task) error {
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

// No more workers wait in place than may, so a hot key does not stop the others.
func TestWaitersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		hot, err := r.locker().Acquire(t.Context(), core.Key("order", "1"))
		if err != nil {
			t.Fatal(err)
		}
		defer hot.Release(context.Background())
		ran := time.Hour
		start := time.Now()
		r.serve(setup{opts: []Option{field("order"), WithWait(time.Minute)}, adjust: func(c *asynq.Config) { c.Concurrency = 4 }},
			func(ctx context.Context, _ *asynq.Task) error { ran = time.Since(start); return nil })
		for range 40 {
			r.enqueue(order(1))
		}
		r.enqueue(order(2))
		r.pass(30 * time.Second)
		if ran > 10*time.Second {
			t.Errorf("the other task ran after %v", ran)
		}
		if got := r.count(EventContended); got < 39 {
			t.Errorf("only %d of 40 were given back", got)
		}
	})
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
		if err != nil || got.State != asynq.TaskStateArchived || !strings.HasPrefix(got.LastErr, `queuelock: not run: the deadline of the last attempt came first: lockkit: acquire "5:order/1:1": held by another holder`) {
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

// The deadline of a task does not come while it waits in place, however short its timeout is: no retry is counted.
func TestDeadlineWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.take(1)
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order"), WithWait(time.Minute)}}, func(context.Context, *asynq.Task) error { return nil })
		for i := range 20 {
			info := r.enqueue(order(1), asynq.Timeout(time.Second))
			r.pass(10 * time.Second)
			if got, err := r.inspector.GetTaskInfo(info.Queue, info.ID); err != nil || got.Retried != 0 || !strings.HasPrefix(got.LastErr, "queuelock: not run, to be delivered again") {
				t.Errorf("task %d: %+v, %v", i, got, err)
			}
		}
		if r.count(EventContended) < 20 || len(user.handled)+len(user.judged) > 0 {
			t.Errorf("%v, %+v", r.events.Counts(), &user)
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

// Without a quorum nothing runs, nothing is burnt, and the user hears of it; later everything runs.
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
		if len(user.handled) == 0 || len(user.judged) > 0 || r.count(EventUnavailable) == 0 {
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
		r.enqueue(order(1), asynq.TaskID("t"))
		r.pass(10 * time.Second)
		lease, err := r.locker().Acquire(t.Context(), core.Key("order", "1"))
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(context.Background())
		r.enqueue(order(1), asynq.TaskID("t"), asynq.MaxRetry(0))
		r.pass(10 * time.Second)
		if r.count(EventDuplicate) != 1 || r.ledger.runs["t"] != 1 {
			t.Errorf("events %v, runs %v", r.events.Counts(), r.ledger.runs)
		}
	})
}
