package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/queuelock"
)

// A batch is tasks of one kind, each of which sleeps. They have one key, or, where that is empty, keys of their own.
type batch struct {
	kind, key string
	tasks     int
	lasts     time.Duration
}

// alone is what they take one after the other.
func (b batch) alone() time.Duration { return time.Duration(b.tasks) * b.lasts }

type payload struct {
	Key   string        `json:"key"`
	Lasts time.Duration `json:"lasts"`
}

var byKey = queuelock.WithKey(queuelock.ByPayloadField("key"))

// work sleeps for as long as the task says.
func work(ctx context.Context, t *asynq.Task) error {
	var p payload
	if err := json.Unmarshal(t.Payload(), &p); err != nil {
		return err
	}
	select {
	case <-time.After(p.Lasts):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A queueRun is servers that work off batches.
type queueRun struct {
	servers, concurrency int
	nodes                int      // for locks; 0 is bare asynq
	cutOff               []string // where one more server looks for them, in vain
	batches              []batch
	limit                time.Duration
}

// A worked is what a run comes to.
type worked struct {
	finishes   map[string]finish // by kind
	deliveries []int             // by server, that which is cut off last
	enqueued   int
	redis      float64 // CPU of asynq's Redis, of one core
}

// A finish is when the tasks of a kind were all done, or how many were left when time was up.
type finish struct {
	after time.Duration
	most  time.Duration // when nine tenths were done; 0 if they were not
	left  int
}

// finishOf is that of tasks of which these were done, in this order, when time was up.
func finishOf(tasks int, done []time.Duration, up time.Duration) finish {
	f := finish{after: up, left: tasks - len(done)}
	if f.left == 0 {
		f.after = done[tasks-1]
	}
	if most := (tasks*9 + 9) / 10; len(done) >= most {
		f.most = done[most-1]
	}
	return f
}

func (f finish) String() string {
	if f.left > 0 {
		return fmt.Sprintf("> %s, %d left", short(f.after), f.left)
	}
	return short(f.after)
}

// ratio is to a time that it is to be compared with.
func (f finish) ratio(to time.Duration) string {
	ratio := times(float64(f.after) / float64(to))
	if f.left > 0 {
		return "> " + ratio
	}
	return ratio
}

// within reports whether all were done in time.
func (f finish) within(d time.Duration) bool { return f.left == 0 && f.after <= d }

func (r queueRun) run(ctx context.Context) (w worked, err error) {
	err = onNodes(1+r.nodes, 0, func(on *nodes) error {
		f := newFleet(on.addrs()[0], "bench")
		err := r.prepare(ctx, f, on.addrs()[1:])
		if err != nil {
			return errors.Join(err, f.close())
		}
		before, err := on.use(ctx, "")
		if err == nil {
			err = f.start()
		}
		if err == nil {
			err = f.await(ctx, r.limit)
		}
		w = r.worked(f)
		took := time.Since(f.began)
		after, failed := on.use(ctx, "")
		if err == nil && failed == nil {
			w.redis = float64(after[0].process-before[0].process) / float64(took)
		}
		return errors.Join(err, failed, f.close())
	})
	return w, err
}

// prepare makes the servers, and enqueues all tasks before they start.
func (r queueRun) prepare(ctx context.Context, f *fleet, locks []string) error {
	if err := provision(ctx, locks); err != nil {
		return err
	}
	for range r.servers {
		if err := f.add(r.concurrency, locks, asynq.HandlerFunc(work), byKey); err != nil {
			return err
		}
	}
	if r.cutOff != nil {
		if err := f.add(r.concurrency, r.cutOff, asynq.HandlerFunc(work), byKey); err != nil {
			return err
		}
	}
	for _, b := range r.batches {
		if err := f.enqueue(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// provision has nodes vote at once: they have no memory to have lost.
func provision(ctx context.Context, locks []string) error {
	if len(locks) == 0 {
		return nil
	}
	locker, err := openLocks(locks)
	if err != nil {
		return err
	}
	return errors.Join(admin.Provision(ctx, locker), locker.Close(ctx))
}

func (r queueRun) worked(f *fleet) worked {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := worked{finishes: map[string]finish{}}
	for _, b := range r.batches {
		w.enqueued += b.tasks
		w.finishes[b.kind] = finishOf(b.tasks, f.done[b.kind], time.Since(f.began))
	}
	for _, one := range f.workers {
		w.deliveries = append(w.deliveries, int(one.taken.Load()))
	}
	return w
}
