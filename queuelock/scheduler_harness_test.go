package queuelock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A replica is a process that runs a Scheduler.
type replica struct {
	*Scheduler
	r     *rig
	locks *locktest.Locker
	queue *testutil.Link            // to asynq's Redis
	off   atomic.Int64              // the offset of its clock
	slept atomic.Pointer[time.Time] // when it fell asleep; nil if it is awake
}

// replica starts a replica with an entry that is due once per period. Its clock is wrong by off.
func (r *rig) replica(off, period time.Duration) *replica {
	r.t.Helper()
	p := r.idleReplica()
	p.off.Store(int64(off))
	must0(r.t, p.Register("entry", "@every "+period.String(), asynq.NewTask("task", nil)))
	return p
}

// idleReplica starts a replica without entries.
func (r *rig) idleReplica() *replica { return r.replicaIn(time.UTC) }

// replicaIn starts a replica without entries, in a time zone.
func (r *rig) replicaIn(in *time.Location) *replica {
	r.t.Helper()
	p := &replica{r: r, locks: r.locks.Replica(), queue: &testutil.Link{}}
	c := r.dialQueue()
	c.AddHook(p.queue)
	s := must(r.middleware(p.locks.Locker).NewScheduler(asynq.NewClientFromRedisClient(c), "billing", in))
	s.now = func() time.Time {
		if since := p.slept.Load(); since != nil {
			return *since
		}
		return time.Now().Add(time.Duration(p.off.Load()))
	}
	p.Scheduler = s
	r.t.Cleanup(s.Shutdown)
	return p
}

// isEnqueue reports whether asynq enqueues a task with cmd under an id that this package made.
func isEnqueue(cmd redis.Cmder) bool { return script(cmd, ":active", ":pending", ":t:lockkit:") }

// tickID returns the id of the task of a tick.
func tickID(at time.Time) string {
	return ID("tick", "billing", "entry", at.UTC().Format(time.RFC3339)).Value().(string)
}

// ticksFrom returns the ids of n ticks, beginning with the first one after the given time.
func ticksFrom(after time.Time, period time.Duration, n int) (ids []string) {
	seconds := int64(period / time.Second)
	first := time.Unix((after.Unix()/seconds+1)*seconds, 0)
	for i := range n {
		ids = append(ids, tickID(first.Add(time.Duration(i)*period)))
	}
	return ids
}

// wantOnce checks that each of these ticks was processed once, and that no other ticks ran.
func (r *rig) wantOnce(ids []string) {
	r.t.Helper()
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	for _, id := range ids {
		if n := r.ledger.done[id]; n != 1 {
			r.t.Errorf("%s: processed %d times", id, n)
		}
	}
	if len(r.ledger.runs) != len(ids) || r.ledger.again > 0 {
		r.t.Errorf("%d ticks of %d ran, %d of them again: %v", len(r.ledger.runs), len(ids), r.ledger.again, r.ledger.runs)
	}
}

// pending returns the ids of the tasks that wait in asynq's default queue.
func (r *rig) pending() []string { return r.pendingIn("default") }

// pendingIn returns the ids of the tasks that wait in a queue. The queue may not exist yet.
func (r *rig) pendingIn(queue string) (ids []string) {
	tasks, err := r.inspector.ListPendingTasks(queue, asynq.PageSize(1000))
	if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
		r.t.Error(err)
	}
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	slices.Sort(ids)
	return ids
}

// untilNext lets time pass in a bubble until the given time before a multiple of the period. It returns the multiple.
func (r *rig) untilNext(period, before time.Duration) time.Time {
	seconds := int64(period / time.Second)
	at := time.Unix((time.Now().Add(before).Unix()/seconds+1)*seconds, 0)
	r.pass(time.Until(at) - before)
	return at
}

// moments records when tasks were first enqueued, by id.
type moments struct {
	mu sync.Mutex
	of map[string]time.Time
}

// watch makes m record when ticks arrive at asynq's Redis.
func (m *moments) watch(r *rig) {
	m.of = map[string]time.Time{}
	r.queue.OnRequest(func(args []string) testutil.Action {
		if _, id, ok := strings.Cut(fmt.Sprint(args), ":t:lockkit:"); ok && strings.Contains(id, ":pending") {
			id, _, _ = strings.Cut("lockkit:"+id, " ")
			m.mu.Lock()
			defer m.mu.Unlock()
			if _, seen := m.of[id]; !seen {
				m.of[id] = time.Now()
			}
		}
		return testutil.Action{}
	})
}
