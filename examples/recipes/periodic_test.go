package recipes

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A clerk is a process with periodic tasks. Its first try to read them fails.
type clerk struct {
	elector  *leader.Elector
	reads    atomic.Int32
	enqueued atomic.Int32
}

func (c *clerk) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	if c.reads.Add(1) == 1 {
		return nil, errors.New("the database is away")
	}
	return []*asynq.PeriodicTaskConfig{{Cronspec: "@every 1s", Task: asynq.NewTask("report", nil)}}, nil
}

// One process enqueues periodic tasks. After it has closed its Elector, another one does, and the first one does not.
func TestPeriodicTasksOfOneProcess(t *testing.T) {
	t.Parallel()
	queue := testutil.NewServers(t, 1)[0].Addr()
	l := locktest.New(t, core.TTL(time.Minute)) // the first process leads until it closes
	start := func(l *locktest.Locker) *clerk {
		c := new(clerk)
		e, err := PeriodicTasks(l.Locker, asynq.PeriodicTaskManagerOpts{
			PeriodicTaskConfigProvider: c,
			RedisConnOpt:               asynq.RedisClientOpt{Addr: queue},
			SchedulerOpts: &asynq.SchedulerOpts{
				LogLevel:        asynq.ErrorLevel,
				PostEnqueueFunc: func(*asynq.TaskInfo, error) { c.enqueued.Add(1) },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.elector = e
		return c
	}

	first := start(l)
	testutil.Await(t, "a task of the first process", func() bool { return first.enqueued.Load() > 0 })
	second := start(l.Replica())
	before := first.enqueued.Load()
	testutil.Await(t, "further tasks of the first process", func() bool { return first.enqueued.Load() > before+2 })
	if reads := second.reads.Load(); reads != 0 {
		t.Errorf("the second process has read its tasks %d times while another leads", reads)
	}

	err := first.elector.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before = first.enqueued.Load()
	testutil.Await(t, "tasks of the second process", func() bool { return second.enqueued.Load() > 2 })
	if after := first.enqueued.Load(); after != before {
		t.Errorf("the first process has enqueued %d tasks after it resigned", after-before)
	}
	err = second.elector.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
}
