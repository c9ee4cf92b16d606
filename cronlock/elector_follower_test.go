package cronlock

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A follower refuses ticks and manual runs, with a typed error that is nothing to look into.
func TestFollowerRefuses(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		first, all := w.members(2, minutely, nil)
		tick := untilMinute(10 * time.Second)
		follower := all[1]
		if runs := w.ran(); len(runs) != 1 || runs[0].replica != first.id() {
			t.Fatalf("runs %+v", runs)
		}
		if err := follower.the("job").RunNow(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.leftToLeader(tick, time.Time{})
		if err := first.the("job").RunNow(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if runs := w.ran(); len(runs) != 2 || !runs[1].Tick.IsZero() {
			t.Errorf("runs %+v", runs)
		}
		// What was left to the leader by hand is not caught up: nobody else has heard of it.
		follower.the("job").RunNow()
		time.Sleep(time.Second)
		if err := first.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, taking, "the follower leads", follower.leads)
		time.Sleep(10 * time.Second)
		if runs := w.ran(); len(runs) != 2 {
			t.Errorf("runs %+v", runs)
		}
	})
}

// leftToLeader checks that these ticks of the job have reached AfterLockError, and no others, each because somebody else leads.
func (w *world) leftToLeader(ticks ...time.Time) {
	w.t.Helper()
	errs := w.failed()
	if len(errs) != len(ticks) {
		w.t.Fatalf("errors %v", errs)
	}
	for i, want := range ticks {
		var te *TickError
		if !errors.As(errs[i], &te) || !errors.Is(te, ErrNotLeader) || te.Job != "job" || !te.Tick.Equal(want) || !IsExpected(te) {
			w.t.Errorf("error %d: %v", i, errs[i])
		}
	}
}

// A follower keeps nothing of the ticks that it has left to the leader, and its scheduler stays up to date.
func TestFollowerKeepsNothing(t *testing.T) {
	serialBubble(t, 1, func(t *testing.T, w *world) {
		awaitLeader(t, taking, w.elector("leader")) // without jobs, so that nothing is recorded
		locks := w.locks()
		follower := w.replicaOn("follower", locks, WithElector(w.electorOn("follower", locks).Elector))
		follower.job(gocron.CronJob(secondly, true), nil)
		follower.sched.Start()
		j := follower.sched.Jobs()[0]
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapObjects)
		}
		check := func() {
			t.Helper()
			next, err := j.NextRun()
			if err != nil || next.Before(time.Now()) {
				t.Errorf("at %v the next run is at %v, %v", time.Now(), next, err)
			}
			all, err := j.NextRuns(5)
			if err != nil || len(all) != 5 || all[0].Before(time.Now()) || all[4].After(time.Now().Add(6*time.Second)) {
				t.Errorf("at %v the next runs are at %v, %v", time.Now(), all, err)
			}
			if n := follower.the("job").kept(); n > 61 { // those within the misfire grace
				t.Errorf("%d entries of past ticks", n)
			}
		}
		time.Sleep(100*time.Second + 500*time.Millisecond)
		check()
		w.mu.Lock()
		w.runs, w.errs = make([]ran, 0, 2000), make([]error, 0, 2000)
		w.mu.Unlock()
		before, goroutines := heap(), runtime.NumGoroutine()
		time.Sleep(1000 * time.Second)
		synctest.Wait()
		check()
		w.mu.Lock()
		n := len(w.errs)
		w.errs = nil
		w.mu.Unlock()
		if n < 1000 {
			t.Errorf("the follower refused %d ticks", n)
		}
		if more := runtime.NumGoroutine() - goroutines; more > 20 {
			t.Errorf("%d more goroutines after 1000 ticks", more)
		}
		if more := heap() - before; more > 500 {
			t.Errorf("%d more objects on the heap after 1000 ticks", more)
		}
	})
}

// A run that ignores its context holds up its own process only: that one does not campaign before it returned.
func TestRunThatIgnoresTheLoss(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		k := newWork()
		first, all := w.members(2, minutely, func(m *member, ctx context.Context) error {
			if m.id() == "0" {
				return k.deaf(ctx)
			}
			return nil
		})
		untilMinute(time.Second)
		run := <-k.started
		first.cable.Cut()
		await(t, ttl, "the leadership is lost", func() bool { return !first.leads() })
		first.cable.Mend()
		synctest.Wait()
		if cause := context.Cause(run); run.Err() == nil || !errors.Is(cause, core.ErrLost) {
			t.Errorf("the run's context: %v", cause)
		}
		other := all[1]
		await(t, ttl+taking, "the other one leads", other.leads)
		if got := first.called(); len(got) != 2 {
			t.Errorf("OnLost waited for the run: %v", got)
		}
		if err := other.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(afterResign + taking)
		if first.leads() || !other.leads() {
			t.Error("the first campaigns while its run goes on")
		}
		if err := first.Resign(t.Context()); err != nil { // it does not lead, so this waits for nothing
			t.Error(err)
		}
		close(k.finish)
		if err := other.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, taking, "the first leads again", first.leads)
	})
}

// forgetLeader has a node forget who leads.
func (w *world) forgetLeader(n *testutil.Node) {
	w.t.Helper()
	for _, key := range n.Keys() {
		if !strings.Contains(key, core.Key("cron-leader")) {
			continue
		}
		if _, err := n.Exec("DEL", key); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The leadership alone, without the leases of the run, is lost as well: the nodes forget the leader's key only. Who
// has lost it does not stand again while its run goes on.
func TestLeadershipLostInMidRun(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		k := newWork()
		first, _ := w.members(1, minutely, func(_ *member, ctx context.Context) error { return k.deaf(ctx) })
		untilMinute(time.Second)
		run := <-k.started
		w.forgetLeader(w.nodes[0])
		other := w.elector("other") // takes it
		await(t, 2*ttl, "the leadership is lost", func() bool { return !first.leads() })
		synctest.Wait()
		if cause := context.Cause(run); run.Err() == nil || !errors.Is(cause, ErrLeadershipLost) || !errors.Is(cause, core.ErrLost) {
			t.Errorf("the run's context ended with %v", cause)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * ttl)
		if first.leads() {
			t.Error("it leads again while a run of its lost term goes on")
		}
		close(k.finish)
		await(t, taking, "it leads again", first.leads)
	})
}
