package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// Of the ticks that fell due while no replica ran, the latest run when the replicas are started again: each once, in their
// order, and not before the schedulers are.
func TestCatchUpAfterRestart(t *testing.T) {
	for _, tt := range []struct {
		n     int
		later time.Duration // the schedulers start so long after the jobs were added
		runs  int
	}{{0, 0, 0}, {1, 0, 1}, {3, 0, 3}, {3, 4 * time.Second, 3}, {100, 0, 6}} {
		t.Run(fmt.Sprintf("the latest %d, started after %v", tt.n, tt.later), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { catchUpAfterRestart(t, w, tt.n, tt.later, tt.runs) })
		})
	}
}

func catchUpAfterRestart(t *testing.T, w *world, n int, later time.Duration, runs int) {
	before := w.catchingUp(n, 0)
	minute := untilMinute(5 * time.Second) // its tick has run
	for _, r := range before {
		r.shutDown()
	}
	time.Sleep(time.Until(minute.Add(62 * time.Second)))
	w.forget()
	w.catchingUp(n, later)
	time.Sleep(time.Until(minute.Add(69 * time.Second)))
	var got, want []time.Time
	for i := range runs {
		want = append(want, minute.Add(time.Duration(7-runs+i)*10*time.Second))
	}
	for _, r := range w.ran() {
		got = append(got, r.Tick)
	}
	if !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("ran %v, want %v; errors: %v", got, want, w.failed())
	}
}

// catchingUp starts three replicas of a job that is due every ten seconds.
func (w *world) catchingUp(n int, later time.Duration) (all []*replica) {
	w.t.Helper()
	for i := range 3 {
		r := w.replica(fmt.Sprint(i), WithCatchUp(n))
		r.job(gocron.CronJob("*/10 * * * * *", true), func(context.Context) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		all = append(all, r)
	}
	before := len(w.ran())
	time.Sleep(later)
	if ran := w.ran()[before:]; len(ran) > 0 {
		w.t.Errorf("ran before the schedulers were started: %v", ran)
	}
	for _, r := range all {
		r.sched.Start()
	}
	return all
}

// shutDown ends the replica.
func (r *replica) shutDown() {
	r.w.t.Helper()
	r.settle()
	if err := errors.Join(r.sched.Shutdown(), r.Close(r.w.t.Context())); err != nil {
		r.w.t.Error(err)
	}
}

// forget forgets the runs so far.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs, w.errs = nil, nil
}

// The next leader runs a tick that fell due while it was stopped, so that it has not seen it, and the leader died.
func TestNextLeaderWasStopped(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		leader, all := w.members(2, minutely, nil)
		untilMinute(5 * time.Second)
		w.forget()
		next := all[1]
		if err := next.sched.StopJobs(); err != nil { // its Elector campaigns on
			t.Fatal(err)
		}
		minute := untilMinute(-time.Second)
		leader.cable.Kill()
		await(t, ttl+taking, "the other leads", next.leads)
		next.sched.Start()
		time.Sleep(10 * time.Second)
		runs := w.ran()
		if len(runs) != 1 || !runs[0].Tick.Equal(minute) || runs[0].replica != next.id() {
			t.Errorf("ran %v; errors: %v", runs, w.failed())
		}
	})
}
