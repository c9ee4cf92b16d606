package queuelock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// The doublings on real servers and in real time, to check that embedded nodes behave like them.
var realDoublings = []struct {
	name string
	run  func(t *testing.T, r *rig, s setup)
}{
	{"cancelled by the inspector", func(t *testing.T, r *rig, s setup) {
		r.serve(s, r.untilDoubled())
		r.enqueue(asynq.NewTask("task", nil), ID("t"))
		testutil.Await(t, "running", func() bool { return r.ledger.count(&r.ledger.runs, theID) == 1 })
		// A cancellation is lost until the server has subscribed.
		testutil.Await(t, "cancelled", func() bool {
			info, err := r.inspector.GetTaskInfo("default", theID)
			return r.inspector.CancelProcessing(theID) == nil && err == nil && info.State == asynq.TaskStateRetry
		})
	}},
	{"redelivery forced by the lease's score", func(t *testing.T, r *rig, s setup) {
		// Otherwise the server may restore the score before another server sees it.
		r.serve(s, r.untilDoubled()).link.OnRequest(r.noExtensionUntilDoubled)
		r.enqueue(asynq.NewTask("task", nil), ID("t"))
		testutil.Await(t, "running", func() bool { return r.ledger.count(&r.ledger.runs, theID) == 1 })
		must0(t, r.dialQueue().Do(t.Context(), "ZADD", "asynq:{default}:lease", 1, theID).Err())
		r.serve(s, r.untilDoubled()) // recovers at once
	}},
}

// untilDoubled returns a handler that ignores its context. It runs until its task is delivered again, at most for a
// minute: asynq delivers nothing twice after the handler has returned.
func (r *rig) untilDoubled() asynq.HandlerFunc {
	return r.does(func(context.Context, int) error {
		for end := time.Now().Add(time.Minute); !r.doubled() && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
}

// noExtensionUntilDoubled is a fault of a server's link. Until a task is delivered again, it drops the requests that
// extend asynq's lease on the task.
func (r *rig) noExtensionUntilDoubled(cmd redis.Cmder) testutil.Action {
	return testutil.Action{DropRequest: cmd.Name() == "zadd" && strings.HasSuffix(fmt.Sprint(cmd.Args()[1]), ":lease") && !r.doubled()}
}

// doubled reports whether a task was delivered again, whether or not it was run.
func (r *rig) doubled() bool {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	return r.ledger.overlaps+r.ledger.again+r.count(EventContended)+r.count(EventDuplicate) > 0
}

func TestDoublingOnRealRedis(t *testing.T) {
	for _, d := range realDoublings {
		t.Run(d.name+"/bare", func(t *testing.T) {
			r := onRedis(t)
			d.run(t, r, setup{bare: true})
			testutil.Await(t, "asynq alone doubles", r.doubled)
		})
		t.Run(d.name+"/locked", func(t *testing.T) {
			r := onRedis(t)
			// Without waiters, the duplicate is reported while the first handler runs.
			d.run(t, r, setup{opts: []Option{WithWaiters(0)}})
			testutil.Await(t, "a duplicate is suppressed", func() bool { return r.count(EventDuplicate) > 0 })
			testutil.Await(t, "the queue is empty", func() bool { q, err := r.inspector.GetQueueInfo("default"); return err == nil && q.Size == 0 })
			r.ledger.mu.Lock()
			defer r.ledger.mu.Unlock()
			if r.ledger.overlaps+r.ledger.again > 0 || r.ledger.runs[theID] != 1 || r.ledger.done[theID] != 1 {
				t.Errorf("overlaps %d, again %d, runs %v, done %v", r.ledger.overlaps, r.ledger.again, r.ledger.runs, r.ledger.done)
			}
		})
	}
}
