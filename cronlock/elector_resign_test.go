package cronlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// openWork is that of a leader that a test ends.
type openWork struct {
	started chan context.Context
	finish  chan struct{}
}

func newWork() *openWork {
	return &openWork{started: make(chan context.Context, 10), finish: make(chan struct{})}
}

// deaf ignores its context.
func (k *openWork) deaf(ctx context.Context) error {
	k.started <- ctx
	<-k.finish
	return nil
}

// leading starts two candidates, the one that leads with a job, and returns the context of its first run.
func (w *world) leading(k *openWork) (l, f *candidate, run context.Context) {
	w.t.Helper()
	a, b := w.elector("a"), w.elector("b")
	l = awaitLeader(w.t, taking, a, b)
	r := w.replicaOn(l.name, l.locks, WithElector(l.Elector))
	r.job(gocron.CronJob(secondly, true), k.deaf)
	r.sched.Start()
	return l, others(l, a, b)[0], <-k.started
}

// Nobody else leads before the runs of the one that resigns have ended.
func TestResignWaitsForRuns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		k := newWork()
		l, f, run := w.leading(k)
		resigned := make(chan error, 1)
		go func() { resigned <- l.Resign(t.Context()) }()
		synctest.Wait()
		if l.leads() {
			t.Error("it leads while it resigns")
		}
		time.Sleep(3 * ttl) // as long as the run takes
		if len(resigned) > 0 {
			t.Error("Resign returned before the run did")
		}
		if f.leads() {
			t.Error("the next leader did not wait for the run")
		}
		if len(k.started) > 0 {
			t.Error("a run started after Resign was called")
		}
		if err := run.Err(); err != nil {
			t.Errorf("the run was told to stop: %v", context.Cause(run))
		}
		close(k.finish)
		if err := <-resigned; err != nil {
			t.Error(err)
		}
		await(t, taking, "the other one leads", f.leads)
	})
}

// A Resign that cannot wait tells runs to stop, and leaves the leadership to nobody before they have.
func TestResignCannotWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		k := newWork()
		l, f, run := w.leading(k)
		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		start := time.Now()
		if err := l.Resign(ctx); !errors.Is(err, why) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		synctest.Wait()
		if run.Err() == nil || !errors.Is(context.Cause(run), ErrLeadershipLost) {
			t.Errorf("the run's context ended with cause %v", context.Cause(run))
		}
		time.Sleep(3 * ttl)
		if f.leads() || l.leads() {
			t.Error("somebody leads, although the run has not ended")
		}
		close(k.finish)
		if err := l.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		await(t, taking, "the other one leads", f.leads)
	})
}

// A Cron whose elector could not be made must not run without one.
func TestCronWithNilElector(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		if _, err := New(w.locks(), scheduler(t), "service", WithElector(nil)); err == nil || !strings.Contains(err.Error(), "elector is nil") {
			t.Errorf("error %v", err)
		}
	})
}
