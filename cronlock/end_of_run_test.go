package cronlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// electedReplica starts a candidate that leads, and whose only job has one tick, at 1:00. When the run of that tick
// ends, all nodes go down.
func (w *world) electedReplica() (*candidate, *Job) {
	w.t.Helper()
	c := w.candidate(core.TTL(time.Minute))
	j, err := c.Add("job", At(at(time.Minute)), func(context.Context) error {
		w.each((*testutil.Node).Down)
		return nil
	}, AtLeastOnce(2))
	if err != nil {
		w.t.Fatal(err)
	}
	return c, j
}

// A replica tries to record the end of a run until the deadline of the elector's Close, and no longer, even though the
// Service stays open.
func TestElectorCloseEndsTheRecording(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		c, _ := w.electedReplica()
		till(time.Minute + 5*time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := c.elector.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !time.Now().Equal(at(time.Minute+7*time.Second)) {
			t.Errorf("Close of the elector: %v, at %v", err, time.Now())
		}
		if n := w.events.Count("cronlock run_unrecorded"); n != 0 {
			t.Errorf("%d ends were given up before the deadline", n)
		}

		time.Sleep(5 * time.Second)
		if n := w.events.Count("cronlock run_unrecorded"); n != 1 {
			t.Errorf("%d ends were given up after the deadline", n)
		}
		w.each((*testutil.Node).Up)
	})
}

// If the end of a run can be recorded before the deadline of the elector's Close, Close waits for that.
func TestElectorCloseWaitsForTheRecording(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		c, j := w.electedReplica()
		till(time.Minute + 5*time.Second)
		time.AfterFunc(6*time.Second, func() { w.each((*testutil.Node).Up) })

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := c.elector.Close(ctx); err != nil {
			t.Errorf("Close of the elector: %v", err)
		}
		past, err := j.History(t.Context(), 1)
		if err != nil || len(past) != 1 || past[0].Ended.IsZero() {
			t.Errorf("history: %+v, %v", past, err)
		}
		if n := w.events.Count("cronlock run_unrecorded"); n != 0 {
			t.Errorf("%d ends were given up", n)
		}
	})
}

// A replica tries to record the end of a run as long as the job's lease lives, even for minutes.
func TestEndInALongOutage(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var up time.Time
		p := plan{schedule: At(at(time.Minute)), core: []core.Option{core.TTL(2 * time.Minute)}, job: []JobOption{AtLeastOnce(3)}}
		p.work = func(context.Context) error {
			w.each((*testutil.Node).Down)
			time.AfterFunc(70*time.Second, func() {
				up = time.Now()
				w.each((*testutil.Node).Up)
			})
			return nil
		}

		r := w.replicas(2, p)[0]
		till(8 * time.Minute)
		w.want(at(time.Minute))

		past, err := r.History(t.Context(), 1)
		if err != nil || len(past) != 1 || past[0].Ended.Before(at(time.Minute)) {
			t.Errorf("history: %+v, %v; the nodes were back at %v", past, err, up)
		}
		if n := w.events.Count("cronlock run_unrecorded"); n != 0 {
			t.Errorf("%d ends were given up", n)
		}
	})
}
