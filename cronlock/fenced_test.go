package cronlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A workLog records the work of each run.
type workLog struct {
	mu    sync.Mutex
	works []string
}

func (l *workLog) add(ctx context.Context) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	work, _ := core.Work(ctx)
	l.works = append(l.works, work)
	return len(l.works)
}

// staleToken is the error of package fence that a greater fencing token was seen.
var staleToken = &core.OpError{Op: core.OpCheck, Key: "k", Err: core.ErrLost, Reason: core.LossStale}

// The work of a run is the service, the job and the tick: the same in each start of the tick. A stale run is no end of
// the tick.
func TestWorkOfATick(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var log workLog
		first, second := at(time.Minute), at(2*time.Minute)
		p := plan{schedule: At(first, second), job: []JobOption{AtLeastOnce(3)}}
		p.work = func(ctx context.Context) error {
			if log.add(ctx) <= 2 {
				return staleToken
			}
			return nil
		}
		r := w.replicas(2, p)[0]
		till(2*time.Minute + 30*time.Second)

		w.want(first, first, first, second)
		want := "lockkit:{" + r.key("tick", stamp(first)) + "}"
		if !slices.Equal(log.works, []string{want, want, want, "lockkit:{" + r.key("tick", stamp(second)) + "}"}) {
			t.Errorf("works %q", log.works)
		}
		if n := w.events.Count("cronlock run_lost"); n != 2 {
			t.Errorf("%d runs were reported as lost, want 2", n)
		}
	})
}

// Each run by hand is work of its own.
func TestWorkOfARunByHand(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var log workLog
		r := w.replica("a", plan{schedule: At(at(time.Hour)), work: func(ctx context.Context) error {
			log.add(ctx)
			return nil
		}})
		outer := w.first.WithWork(t.Context(), "request", "1") // the run is other work than its caller's
		for range 2 {
			if err := r.RunNow(outer); err != nil {
				t.Fatal(err)
			}
		}
		caller, _ := core.Work(outer)
		if len(log.works) != 2 || log.works[0] == log.works[1] || slices.Contains(log.works, caller) || slices.Contains(log.works, "") {
			t.Errorf("works %q", log.works)
		}
	})
}

// A tick whose work the database has recorded is completed, without an error, even if the run's context has ended.
func TestWorkIsDoneInTheDatabase(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		p := plan{schedule: At(at(time.Minute)), job: []JobOption{AtLeastOnce(3), WithHost(func() {})}}
		ctx, cancel := context.WithCancel(t.Context())
		p.work = func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			work, _ := core.Work(ctx)
			return &core.OpError{Op: core.OpOnce, Key: work, Err: core.ErrDone, Record: &core.Record{}}
		}
		r := w.replica("a", p)
		till(time.Minute + time.Second)
		if err := r.RunDue(ctx); err != nil {
			t.Errorf("RunDue: %v", err)
		}
		past, err := r.History(t.Context(), 1)
		if err != nil || len(past) != 1 || past[0].Ended.IsZero() || past[0].Error != "" {
			t.Errorf("history: %+v, %v", past, err)
		}
	})
}

// A stale run fails with ErrLost, and is not started again without AtLeastOnce.
func TestStaleRunIsALoss(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: At(at(time.Minute)), job: uncalled, work: func(context.Context) error { return staleToken }})
		till(time.Minute + time.Second)
		if err := r.RunDue(t.Context()); !errors.Is(err, core.ErrLost) {
			t.Errorf("RunDue: %v", err)
		}
		till(5 * time.Minute)
		w.want(at(time.Minute))
	})
}
