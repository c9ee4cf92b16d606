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

// The same on real servers and in real time, for what embedded nodes do not have (cancellation goes by pub/sub) and to see
// that they do not flatter.
var realDoublings = []struct {
	name string
	run  func(t *testing.T, r *rig, s setup)
}{
	{"cancelled by the inspector", func(t *testing.T, r *rig, s setup) {
		r.serve(s, r.untilDoubled())
		r.enqueue(asynq.NewTask("task", nil), ID("t"))
		testutil.Await(t, "running", func() bool { return r.ledger.count(&r.ledger.runs, theID) == 1 })
		testutil.Await(t, "cancelled", func() bool { // until its server has subscribed
			info, err := r.inspector.GetTaskInfo("default", theID)
			return r.inspector.CancelProcessing(theID) == nil && err == nil && info.State == asynq.TaskStateRetry
		})
	}},
	{"redelivery forced by the lease's score", func(t *testing.T, r *rig, s setup) {
		r.serve(s, r.untilDoubled()).link.OnRequest(r.noExtensionUntilDoubled) // or it may take the score back before it is seen
		r.enqueue(asynq.NewTask("task", nil), ID("t"))
		testutil.Await(t, "running", func() bool { return r.ledger.count(&r.ledger.runs, theID) == 1 })
		must0(t, r.dialQueue().Do(t.Context(), "ZADD", "asynq:{default}:lease", 1, theID).Err())
		r.serve(s, r.untilDoubled()) // recovers at once
	}},
}

// untilDoubled is a handler that does not look at its context. It goes on until its task has come again, however late that
// is: asynq has nothing to deliver twice once it is over.
func (r *rig) untilDoubled() asynq.HandlerFunc {
	return r.does(func(context.Context, int) error {
		for end := time.Now().Add(time.Minute); !r.doubled() && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
}

// noExtensionUntilDoubled is a fault of a server's link: until a task has come again, what is lost is that it works on it still.
func (r *rig) noExtensionUntilDoubled(cmd redis.Cmder) testutil.Action {
	return testutil.Action{DropRequest: cmd.Name() == "zadd" && strings.HasSuffix(fmt.Sprint(cmd.Args()[1]), ":lease") && !r.doubled()}
}

// doubled reports whether a task has come again, and was run or not.
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
			d.run(t, r, setup{opts: []Option{WithWaiters(0)}}) // so that it is heard of while the first handler runs
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
