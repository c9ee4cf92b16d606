package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/testutil"
)

func field(name string) Option { return WithKey(ByPayloadField(name)) }

func order(n int) *asynq.Task { return asynq.NewTask("task", fmt.Appendf(nil, `{"order":%d}`, n)) }

// told records the errors that a user's own functions of the configuration receive.
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

// On each node, a task costs one request to acquire its identity and one to complete it. A key costs two more.
func TestRequestsPerTask(t *testing.T) {
	for n, opts := range map[int][]Option{2: nil, 4: {field("order")}} {
		bubbleOf(t, fmt.Sprint(n), func(t *testing.T, r *rig) {
			r.serve(setup{opts: opts}, func(context.Context, *asynq.Task) error {
				// A task that is done at once spares the requests to nodes that have not been asked yet.
				time.Sleep(time.Millisecond)
				return nil
			})
			r.enqueue(order(0)) // loads the scripts
			r.pass(10 * time.Second)
			asked := r.countScripts()
			for i := range 10 { // one by one: requests of tasks that come together share batches
				r.enqueue(order(i))
				r.pass(2 * time.Second)
			}
			for i, got := range asked() {
				// Tasks that asynq starts together share requests.
				if got > int64(10*n) || got == 0 {
					t.Errorf("node %d: %d requests for 10 tasks, want 1 to %d", i, got, 10*n)
				}
			}
		})
	}
}

// countScripts counts the scripts that each node runs, except touches of idle nodes. asked ends the count and returns
// it.
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

// A last attempt that cannot get its key is archived at its deadline, with the reason, an event and an error in the
// log. It can be run from the archive.
func TestLastAttemptArchivedUnrun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, r.works(90*time.Second))
		r.begun(r.enqueue(order(1)))
		second := r.enqueue(order(1), asynq.MaxRetry(0), asynq.Timeout(40*time.Second))
		r.pass(time.Minute)

		got, err := r.inspector.GetTaskInfo(second.Queue, second.ID)
		if err != nil || got.State != asynq.TaskStateArchived || !strings.HasPrefix(got.LastErr, `queuelock: not run: lockkit: acquire "5:order/1:1": held by another holder`) {
			t.Fatalf("%+v, %v", got, err)
		}
		if len(user.handled) != 1 || r.count(EventArchived) != 1 || r.logs.Count("level=ERROR", "queuelock: a task could not be run") != 1 {
			t.Errorf("told %+v, events %v\n%s", &user, r.events.Counts(), r.logs.Lines())
		}

		r.pass(time.Minute)
		must0(t, r.inspector.RunTask(second.Queue, second.ID))
		r.pass(2 * time.Minute) // the handler ignores its deadline
		if r.ledger.done[second.ID] != 1 || r.ledger.overlaps != 0 {
			t.Errorf("%+v", &r.ledger)
		}
	})
}

// A server that shuts down gives a waiting task back to the queue, even on its last attempt, and even if its Locker was
// closed too early.
func TestShutdownWhileWaiting(t *testing.T) {
	for _, closed := range []bool{false, true} {
		bubbleOf(t, fmt.Sprintf("locker closed=%v", closed), func(t *testing.T, r *rig) {
			other := setup{opts: []Option{field("order")}, adjust: only("other")}
			r.serve(setup{opts: other.opts}, r.works(time.Minute))
			r.begun(r.enqueue(order(1)))
			first := r.serve(other, r.works(time.Minute))
			info := r.enqueue(order(1), asynq.MaxRetry(0), asynq.Queue("other"))
			r.pass(5 * time.Second)

			if closed {
				must0(t, first.locker.Close(t.Context()))
			}
			first.Shutdown()
			synctest.Wait()
			if s := r.state(info); s != "pending" {
				t.Fatalf("is %s", s)
			}

			r.serve(other, r.works(time.Minute))
			r.pass(150 * time.Second)
			if r.ledger.done[info.ID] != 1 || r.ledger.overlaps > 0 {
				t.Errorf("%+v", &r.ledger)
			}
		})
	}
}
