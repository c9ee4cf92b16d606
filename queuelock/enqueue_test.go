package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// byOrder is an identity that leaves out the type and the queue.
func byOrder() TaskOption { return WithSharedIdentity(ByPayloadField("order")) }

// A producer is a process that enqueues.
type producer struct {
	*replica
	runner *Runner
	client *asynq.Client
}

func (r *rig) producer(opts ...Option) *producer {
	r.t.Helper()
	p := r.idleReplica()
	return &producer{p, r.runner(p.locks.Locker, opts...), p.client}
}

func (p *producer) Enqueue(typ string, order int, opts ...asynq.Option) error {
	_, err := p.runner.Enqueue(p.r.t.Context(), p.replica.client, asynq.NewTask(typ, fmt.Appendf(nil, `{"order":%d}`, order)), opts...)
	return err
}

// One of many producers enqueues, whatever type and queue they choose.
func TestEnqueueOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		var done sync.WaitGroup
		told := map[error]int{}
		for i := range 12 {
			p := r.producer(byOrder())
			done.Go(func() {
				err := p.Enqueue([]string{"task", "task2"}[i%2], 1, asynq.Queue([]string{"default", "other"}[i/2%2]))
				if errors.Is(err, ErrEnqueued) {
					err = ErrEnqueued
				}
				mu.Lock()
				defer mu.Unlock()
				told[err]++
			})
		}
		done.Wait()
		if told[nil] != 1 || told[ErrEnqueued] != 11 {
			t.Error(told)
		}
		if err := r.producer(byOrder()).Enqueue("task", 2); err != nil {
			t.Error(err)
		}
		r.serve(setup{opts: []Option{byOrder()}, adjust: func(c *asynq.Config) { c.Queues = map[string]int{"default": 1, "other": 1} }}, r.note)
		r.pass(time.Minute)
		if n := len(r.ledger.done); n != 2 {
			t.Errorf("%d tasks of 2 orders: %v", n, r.ledger.done)
		}
	})
}

// What was enqueued counts for the retention, and in its queue for as long as it is there; what was completed for the retention
// from then on.
func TestForHowLongATaskCountsAsEnqueued(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		short := []Option{byOrder(), WithRetention(time.Hour)}
		p := r.producer(short...)
		want := func(of, typ string, order int, queue string, want error) {
			t.Helper()
			if err := p.Enqueue(typ, order, asynq.Queue(queue), asynq.MaxRetry(0)); !errors.Is(err, want) {
				t.Errorf("%s: %v", of, err)
			}
		}
		want("new", "task", 1, "default", nil)
		want("new", "fails", 2, "default", nil)
		want("new", "task", 3, "other", nil)
		r.pass(time.Minute)
		want("waiting", "task", 1, "other", ErrEnqueued)
		r.serve(setup{opts: short}, func(ctx context.Context, task *asynq.Task) error { return r.note(ctx, task) })
		r.pass(time.Minute)
		want("completed", "task", 1, "other", ErrCompleted)
		want("archived", "task", 2, "other", ErrEnqueued) // nobody handles "fails"
		r.pass(time.Hour - 90*time.Second)
		want("completed less than the retention ago", "task", 1, "default", ErrCompleted)
		r.pass(6 * time.Minute) // asynq may take four to deliver it again
		want("completed, after the retention", "task", 1, "default", nil)
		want("archived, after the retention", "task", 2, "default", ErrEnqueued)
		want("met a moment ago", "task", 2, "other", ErrEnqueued)
		want("waiting elsewhere, after the retention", "task", 3, "default", nil)
	})
}

// A producer dies between enqueuing and the record: the next one finds the task in its queue, or completed; and what it
// enqueues elsewhere is not run again.
func TestProducerDies(t *testing.T) {
	for name, c := range map[string]death{
		"the task waits":                  {false, "default", ErrEnqueued},
		"the task is completed":           {true, "default", ErrCompleted},
		"the task waits in another queue": {false, "other", nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) { r.producerDies(c) })
		})
	}
}

type death struct {
	served bool   // the task is completed when the second producer comes,
	queue  string // which enqueues into this one,
	want   error  // and is told this
}

func (r *rig) producerDies(c death) {
	serve := func() {
		r.serve(setup{opts: []Option{byOrder()}, adjust: func(c *asynq.Config) { c.Queues = map[string]int{"default": 1, "other": 1} }}, r.note)
	}
	if c.served {
		serve()
	}
	first, second := r.producer(byOrder()), r.producer(byOrder())
	first.onEnqueue(func() testutil.Action { first.locks.Link.Kill(); return testutil.Action{} })
	if err := first.Enqueue("task", 1); err != nil || r.logs.count("WARN queuelock: a task was enqueued, and that could not be recorded") != 1 {
		r.t.Errorf("%v\n%s", err, &r.logs)
	}
	r.pass(5 * time.Second)
	if err := second.Enqueue("task", 1, asynq.Queue(c.queue)); !errors.Is(err, c.want) {
		r.t.Error(err)
	}
	if err := second.Enqueue("task", 1, asynq.Queue("third")); err == nil {
		r.t.Error("enqueued again")
	}
	if !c.served {
		serve()
	}
	r.pass(time.Minute)
	if n := r.ledger.done[oncePrefix+core.Key("queue", "identity", "", core.Key("order", "1"))]; n != 1 || r.ledger.again > 0 {
		r.t.Errorf("%+v", &r.ledger)
	}
}

// Without a quorum nothing is enqueued; without asynq's Redis nothing is recorded.
func TestEnqueueOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.producer(byOrder())
		for _, n := range r.nodes[:2] {
			n.Down()
		}
		if err := p.Enqueue("task", 1); !errors.Is(err, core.ErrUnavailable) || len(r.queue.Keys()) > 0 {
			t.Error(err, r.queue.Keys())
		}
		for _, n := range r.nodes[:2] {
			n.Up()
		}
		r.pass(10 * time.Second)
		r.queue.Down()
		if err := p.Enqueue("task", 1); err == nil || errors.Is(err, ErrEnqueued) {
			t.Error(err)
		}
		r.queue.Up()
		r.pass(10 * time.Second)
		if err := p.Enqueue("task", 1); err != nil {
			t.Error(err)
		}
	})
}

// Options of the task and of the call are kept, but for the id.
func TestEnqueueKeepsOptions(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.producer(byOrder())
		task := asynq.NewTaskWithHeaders("task", []byte(`{"order":1}`), map[string]string{"mine": "1"},
			asynq.MaxRetry(3), asynq.Queue("low"), asynq.TaskID("mine"))
		info, err := p.runner.Enqueue(t.Context(), p.client, task, asynq.Queue("high"), asynq.ProcessIn(time.Hour))
		if err != nil || info.MaxRetry != 3 || info.Queue != "high" || info.State != asynq.TaskStateScheduled || info.Headers["mine"] != "1" || info.ID == "mine" {
			t.Errorf("%+v, %v", info, err)
		}
		if err := p.Enqueue("task", 1, asynq.Unique(time.Minute)); !errors.Is(err, ErrEnqueued) {
			t.Error(err)
		}
		if _, err := p.client.Enqueue(asynq.NewTask("task", []byte(`{"order":2}`)), asynq.Unique(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := p.Enqueue("task", 2, asynq.Unique(time.Minute)); !errors.Is(err, ErrEnqueued) || !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Error(err)
		}
	})
}

// An identity that is not shared counts within its type.
func TestEnqueueOncePerType(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.producer(WithIdentity(ByPayloadField("order")))
		for _, typ := range []string{"charge", "mail"} {
			if err := p.Enqueue(typ, 1); err != nil {
				t.Error(err)
			}
			if err := p.Enqueue(typ, 1); !errors.Is(err, ErrEnqueued) || strings.Contains(err.Error(), "completed") {
				t.Error(err)
			}
		}
	})
}

func TestEnqueueMisuse(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		p := r.producer(byOrder())
		_, err := r.runner(r.locker()).Enqueue(t.Context(), nil, nil, asynq.TaskID("t"), nil)
		wantFaults(t, err, "client is nil", "task is nil", `TaskID("t")`, "option is nil")
		_, err = r.runner(r.locker(), ForType("task", byOrder())).Enqueue(t.Context(), p.client, asynq.NewTask("other", nil))
		wantFaults(t, err, `"other"`, "WithIdentity")
		_, err = p.runner.Enqueue(t.Context(), p.client, asynq.NewTask("", nil))
		wantFaults(t, err, "no type")
		_, err = p.runner.Enqueue(t.Context(), p.client, asynq.NewTask("task", nil))
		wantFaults(t, err, "identity of the task", "order")
	})
}

func wantFaults(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// A task whose id may be used again is told of once per type, at its first delivery; others are not.
func TestUnstamped(t *testing.T) {
	for _, c := range []sight{
		{"", false, nil, 0}, // asynq makes one up
		{"report:daily", false, nil, 1},
		{"report:daily", true, nil, 0},
		{"report:daily", false, []Option{WithIdentity(ByHeader("tick"))}, 0},
		{"0cc175b9c0f1b6a831c399e269772661", false, nil, 1},     // an MD5 sum
		{"886313e1-3b8a-5372-9b90-0c9aee199e5d", false, nil, 1}, // a UUID of a name
		{"01936b5e-5f0a-7c3b-8a4e-1f2d3c4b5a69", false, nil, 0}, // one of a time
		{tickPrefix + "x", false, nil, 0},
		{oncePrefix + "x", false, nil, 0},
	} {
		t.Run(fmt.Sprint(c.id, c.stamp, len(c.opts)), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) { r.see(c) })
		})
	}
}

type sight struct {
	id    string
	stamp bool
	opts  []Option
	told  int // for each type
}

func (r *rig) see(c sight) {
	r.serve(setup{opts: c.opts}, r.note)
	enqueue := func(typ string, i int) {
		headers := map[string]string{"tick": fmt.Sprint(typ, i)}
		if c.stamp {
			headers = Stamp(headers)
		}
		var opts []asynq.Option
		if c.id != "" {
			opts = append(opts, asynq.TaskID(c.id))
		}
		r.enqueue(asynq.NewTaskWithHeaders(typ, nil, headers), opts...)
		r.pass(10 * time.Second)
	}
	enqueue("task", 0)
	if r.count(EventUnstamped) != c.told || r.count(EventDuplicate) > 0 {
		r.t.Errorf("told after the loss, or not: %v", r.events.Counts())
	}
	for i := range 3 {
		enqueue("task2", i)
		enqueue("task", i+1)
	}
	if got := r.logs.count("WARN queuelock: tasks of this type"); got != 2*c.told || r.count(EventUnstamped) != got {
		r.t.Errorf("told %d times, events %v", got, r.events.Counts())
	}
}
