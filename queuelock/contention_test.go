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
		lease, err := r.locker().Acquire(t.Context(), delimited(entityKeys, "order=1"))
		if err != nil {
			t.Fatal(err)
		}
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
			if n, _ := asynq.GetRetryCount(ctx); n != 0 {
				t.Errorf("retried %d times", n)
			}
			return r.work(ctx, time.Second)
		})
		info := r.enqueue(order(1), asynq.MaxRetry(1))
		for r.events.count(EventContended) < 50 {
			r.pass(time.Second)
			if s := r.state(info); s == "archived" || s == "gone" || s == "completed" {
				t.Fatal(s)
			}
		}
		if got, _ := r.inspector.GetTaskInfo(info.Queue, info.ID); got.Retried != 0 || !strings.Contains(got.LastErr, "delivered again") && got.State != asynq.TaskStateActive {
			t.Errorf("after 50 contentions: %+v", got)
		}
		lease.Release(t.Context())
		r.pass(20 * time.Second)
		if r.ledger.done[info.ID] != 1 || r.state(info) != "gone" {
			t.Errorf("%v, %s", r.ledger.done, r.state(info))
		}
		if len(user.handled)+len(user.judged)+len(user.delayed) > 0 {
			t.Errorf("the user's functions were told: %+v", &user)
		}
	})
}

// The task is delivered again about when the key may be free: after the rest of its holder, and not long
// after that.
func TestRedeliveryAfterTheHoldersRest(t *testing.T) {
	for range 1000 {
		for _, rest := range []time.Duration{0, time.Millisecond, time.Second, 10 * time.Second} {
			// asynq cuts a time down to whole seconds
			if d := later(rest); d-time.Second < rest || d-time.Second < time.Second || d > rest*3/2+3*time.Second {
				t.Fatalf("a rest of %v: delivered after %v", rest, d)
			}
		}
	}
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
		if took := time.Since(start); took > 12*time.Second || r.events.count(EventContended) > 0 {
			t.Errorf("took %v, events %v", took, r.events.n)
		}
	})
}

// Tasks of one entity run one at a time across types, queues and servers, with growing tokens; others are
// not held up by them.
func TestOneAtATimePerKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		last := map[string]uint64{}
		var sides []time.Duration
		start := time.Now()
		for range 3 {
			r.serve(setup{opts: []Option{field("order")}, adjust: func(c *asynq.Config) {
				c.Queues = map[string]int{"high": 2, "low": 1}
			}}, func(ctx context.Context, task *asynq.Task) error {
				if strings.HasPrefix(task.Type(), "task:side") {
					mu.Lock()
					defer mu.Unlock()
					sides = append(sides, time.Since(start))
					return nil
				}
				return r.ledger.run(string(task.Payload()), func() error {
					e, ok := FromContext(ctx)
					lease, held := core.FromContext(ctx)
					mu.Lock()
					if !ok || !held || lease.FencingToken() != e.FencingToken || e.FencingToken <= last[lease.Key()] {
						t.Errorf("%+v %v, lease %v, last token %d", e, ok, held, last[lease.Key()])
					}
					last[lease.Key()] = e.FencingToken
					mu.Unlock()
					time.Sleep(300 * time.Millisecond)
					return nil
				})
			})
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
		if r.ledger.overlaps > 0 || len(last) != 2 {
			t.Errorf("overlaps %d, keys %v", r.ledger.overlaps, last)
		}
		for _, key := range []string{`{"order":0}`, `{"order":1}`} {
			if got := r.ledger.done[key]; got != n/2 {
				t.Errorf("%s: %d of %d", key, got, n/2)
			}
		}
		if len(sides) != 10 || slices.Max(sides) > 20*time.Second {
			t.Errorf("the other tasks ran after %v", sides)
		}
	})
}

// No more workers wait in place than may, so a hot key does not stop the others.
func TestWaitersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		hot, err := r.locker().Acquire(t.Context(), delimited(entityKeys, "order=1"))
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
		if got := r.events.count(EventContended); got < 39 {
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
		if r.ledger.overlaps > 0 || len(user.handled) > 0 || r.events.count(EventContended) > 0 {
			t.Errorf("overlaps %d, told %+v, events %v", r.ledger.overlaps, &user, r.events.n)
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
		if err != nil || got.State != asynq.TaskStateArchived || !strings.HasPrefix(got.LastErr, `queuelock: not run: the deadline of the last attempt came first: lockkit: acquire "queue/key/7:order=1": held by another holder`) {
			t.Fatalf("%+v, %v", got, err)
		}
		if len(user.handled) != 1 || r.events.count(EventArchived) != 1 || r.logs.count("ERROR queuelock: a task could not be run") != 1 {
			t.Errorf("told %+v, events %v\n%s", &user, r.events.n, &r.logs)
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
		if len(user.handled) == 0 || len(user.judged) > 0 || r.events.count(EventUnavailable) == 0 {
			t.Errorf("told %+v, events %v", &user, r.events.n)
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
				asked := make([]atomic.Int64, len(r.nodes))
				for i, node := range r.nodes {
					node.OnRequest(func(args []string) testutil.Action {
						if args[0] == "EVALSHA" && !strings.HasSuffix(args[3], "}g") { // touches of idle nodes
							asked[i].Add(1)
						}
						return testutil.Action{}
					})
				}
				for i := range 10 { // one by one: what comes together travels together
					r.enqueue(order(i))
					r.pass(2 * time.Second)
				}
				for i, node := range r.nodes {
					node.OnRequest(nil)
					if got := asked[i].Load(); got > int64(10*n) || got < int64(5*n) { // two may travel together
						t.Errorf("node %d: %d requests for 10 tasks, want at most %d", i, got, 10*n)
					}
				}
			})
		})
	}
}

// A duplicate of a completed task is told so at once, however busy its entity is.
func TestDuplicateDoesNotWaitForTheEntity(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		r.enqueue(order(1), asynq.TaskID("t"))
		r.pass(10 * time.Second)
		lease, err := r.locker().Acquire(t.Context(), delimited(entityKeys, "order=1"))
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Release(context.Background())
		r.enqueue(order(1), asynq.TaskID("t"), asynq.MaxRetry(0))
		r.pass(10 * time.Second)
		if r.events.count(EventDuplicate) != 1 || r.ledger.runs["t"] != 1 {
			t.Errorf("events %v, runs %v", r.events.n, r.ledger.runs)
		}
	})
}
