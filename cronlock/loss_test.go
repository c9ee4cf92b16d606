package cronlock

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A run whose lease is lost learns of it before any other replica runs the tick again. When it ends after all,
// its success is an error that says so, and does not count: the record is that of the other run.
func TestLostLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lost, failed := make(chan end, 1), make(chan error, 1)
		locks, link := w.wired()
		cut := w.replicaOn("cut", locks, AtLeastOnce(2))
		goOn := make(chan struct{})
		cut.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
			link.Cut()
			at, cause := ended(ctx)
			lost <- end{at, cause}
			<-goOn
			return nil
		}, listeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
		cut.sched.Start()
		time.Sleep(time.Minute + 100*time.Millisecond)

		other := w.replica("other", AtLeastOnce(2), WithClock(skewed{defaults().clock, -200 * time.Millisecond})) // comes second
		other.job(gocron.CronJob(minutely, true), func(context.Context) error { time.Sleep(5 * time.Second); return nil })
		other.sched.Start()
		time.Sleep(50 * time.Second)

		e := <-lost
		if !errors.Is(e.cause, core.ErrLost) {
			t.Errorf("the context ended with %v", e.cause)
		}
		runs := w.ran()
		if len(runs) != 2 || runs[1].replica != "other" || !runs[1].Tick.Equal(runs[0].Tick) {
			t.Fatalf("runs: %v; errors: %v", runs, w.failed())
		}
		attemptsInOrder(t, runs)
		if !e.at.Before(runs[1].at) {
			t.Errorf("run again at %v, the context had not ended before %v", runs[1].at, e.at)
		}

		link.Mend()
		close(goOn)
		if err := <-failed; !errors.Is(err, core.ErrLost) {
			t.Errorf("the task's error is %v", err)
		}
		rec := w.recordOf(other, runs[0].Tick)
		if rec.Outcome != outcomeRan || rec.Attempt != 2 || rec.By == "" {
			t.Errorf("the record of the tick is %v, attempt %d", rec, rec.Attempt)
		}
		if n := len(w.ran()); n != 2 {
			t.Errorf("%d runs", n)
		}
	})
}

// recordOf is what the nodes have recorded of the tick.
func (w *world) recordOf(r *replica, tick time.Time) record {
	w.t.Helper()
	_, err := r.locker.TryAcquire(w.t.Context(), core.Key("cron", "service", "job", "tick", stamp(tick)))
	var op *core.OpError
	if !errors.Is(err, core.ErrDone) || !errors.As(err, &op) {
		w.t.Fatalf("the tick is not done: %v", err)
	}
	var rec record
	if err := json.Unmarshal(op.Record.Result, &rec); err != nil || rec.Outcome == "" {
		w.t.Fatalf("not a record: %s, %v", op.Record.Result, err)
	}
	return rec
}

// Where nobody ran the tick again, a late completion counts, as what it is: without a lease to the end.
func TestLostLeaseAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		r := w.replica("0")
		r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
			for _, n := range w.nodes {
				n.Hang()
			}
			_, cause := ended(ctx)
			if !errors.Is(cause, core.ErrLost) {
				t.Errorf("the context ended with %v", cause)
			}
			for _, n := range w.nodes {
				n.Up()
			}
			return nil
		})
		r.sched.Start()
		time.Sleep(100 * time.Second)
		runs := w.ran()
		if len(runs) != 1 {
			t.Fatalf("runs: %v", runs)
		}
		if rec := w.recordOf(r, runs[0].Tick); rec.Outcome != "lost" {
			t.Errorf("the record of the tick is %v", rec)
		}
	})
}

// Each of its leases alone ends a run, when somebody else is granted its key.
func TestEitherLeaseEndsTheRun(t *testing.T) {
	minute := stamp(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC))
	for name, key := range map[string]string{
		"tick": core.Key("cron", "service", "job", "tick", minute),
		"job":  core.Key("cron", "service", "job", "run"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				r := w.replica("0")
				cause, over := make(chan error, 1), make(chan struct{})
				defer close(over)
				r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						cause <- context.Cause(ctx)
					case <-over:
					}
					return nil
				})
				r.sched.Start()
				time.Sleep(time.Minute + 100*time.Millisecond)
				if _, err := w.nodes[0].Exec("DEL", "lockkit:{0}r:"+key); err != nil { // as if the node had forgotten it
					t.Fatal(err)
				}
				if _, err := w.locks().Acquire(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if err := testutil.Receive(t, cause); !errors.Is(err, core.ErrLost) {
					t.Errorf("the context ended with %v", err)
				}
			})
		})
	}
}

// The end of a run is recorded although the nodes are away when it comes, for a moment.
func TestRecordIsRepeated(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		r.job(gocron.CronJob(minutely, true), func(context.Context) error {
			w.nodes[0].Down()
			time.AfterFunc(400*time.Millisecond, w.nodes[0].Up)
			return nil
		})
		r.sched.Start()
		time.Sleep(time.Minute + 5*time.Second)
		runs := w.ran()
		if len(runs) != 1 {
			t.Fatalf("runs: %v", runs)
		}
		if rec := w.recordOf(r, runs[0].Tick); rec.Outcome != outcomeRan {
			t.Errorf("recorded: %v", rec)
		}
	})
}
