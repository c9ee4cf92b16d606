package cronlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// If a start is on record and its run could not begin, the start counts as one that did not complete. With AtLeastOnce,
// the tick is started before any later tick and regardless of its age, as on any other replica. Without AtLeastOnce,
// the tick is missed when its grace has passed.
func TestUnbegunStartOutlastsTheGrace(t *testing.T) {
	const tick, later = 2 * time.Minute, 2*time.Minute + 30*time.Second
	for name, c := range map[string]struct {
		starts   int
		schedule Schedule
		want     []time.Duration
		err      error
	}{
		"at least once":                   {2, At(at(tick)), []time.Duration{tick}, nil},
		"at least once, and a later tick": {2, At(at(tick), at(later)), []time.Duration{tick, later}, nil},
		"at most once":                    {1, At(at(tick)), nil, ErrMissed},
	} {
		bubbleOf(t, name, time.Minute+30*time.Second, func(t *testing.T, w *world) {
			var r *replica
			ctx, stop := context.WithCancel(t.Context())
			observer := core.Observer{Start: func(c context.Context, op core.Op) (context.Context, func(core.Outcome)) {
				if op.Kind == core.OpComplete && op.Key == r.startKey(at(tick), 1) {
					return c, func(core.Outcome) { stop() }
				}
				return c, nil
			}}

			job := append([]JobOption{AtLeastOnce(c.starts), WithGrace(15 * time.Second)}, uncalled...)
			r = w.replica("a", plan{schedule: c.schedule, job: job, core: []core.Option{core.WithObserver(observer)}})

			till(tick)
			if err := r.RunDue(ctx); !errors.Is(err, context.Canceled) || len(w.ran()) > 0 {
				t.Fatalf("RunDue: %v, %d runs", err, len(w.ran()))
			}

			till(later + time.Second)
			var want []time.Time
			for _, tick := range c.want {
				want = append(want, at(tick))
				if err := r.RunDue(t.Context()); err != nil {
					t.Errorf("RunDue: %v", err)
				}
			}
			if c.err != nil {
				if err := r.RunDue(t.Context()); !errors.Is(err, c.err) {
					t.Errorf("RunDue: %v, want %v", err, c.err)
				}
			}

			w.want(want...)
			for _, run := range w.ran() {
				if run.Attempt != 1 {
					t.Errorf("%+v", run)
				}
			}
		})
	}
}

// A start on record is in the history of every replica, also of the replica that recorded it and did not begin the run.
func TestHistoryShowsAStartThatDidNotBegin(t *testing.T) {
	bubble(t, time.Minute+30*time.Second, func(t *testing.T, w *world) {
		var r *replica
		ctx, stop := context.WithCancel(t.Context())
		observer := core.Observer{Start: func(c context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			if op.Kind == core.OpComplete && op.Key == r.startKey(at(2*time.Minute), 1) {
				return c, func(core.Outcome) { stop() }
			}
			return c, nil
		}}
		schedule := At(at(2*time.Minute), at(3*time.Minute))
		r = w.replica("a", plan{schedule: schedule, job: uncalled, core: []core.Option{core.WithObserver(observer)}})
		till(2 * time.Minute)
		if err := r.RunDue(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("RunDue: %v", err)
		}

		till(3 * time.Minute)
		b := w.replica("b", plan{schedule: schedule, job: uncalled})
		if err := b.RunDue(t.Context()); err != nil {
			t.Fatalf("RunDue: %v", err)
		}
		w.want(at(3 * time.Minute))

		for _, replica := range []*replica{r, b} {
			past, err := replica.History(t.Context(), 2)
			if err != nil || len(past) != 2 || past[1].Attempt != 1 || past[1].Superseded {
				t.Errorf("History: %+v, %v", past, err)
			}
		}
	})
}
