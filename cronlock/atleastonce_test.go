package cronlock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// hold returns a function that takes so long, or until it is told to stop.
func hold(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// onlyFirst makes the first start of a tick do f; all others return at once.
func onlyFirst(tick time.Time, f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if r, _ := FromContext(ctx); r.Attempt == 1 && r.Tick.Equal(tick) {
			return f(ctx)
		}
		return nil
	}
}

// The end of a run that no quorum records is told of, and the tick is started again.
func TestEndThatIsNotRecorded(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		var log logbook.Book
		w.replica("a", plan{core: []core.Option{core.WithLogger(log.Logger())}, job: []JobOption{AtLeastOnce(2)},
			work: onlyFirst(at(3*time.Minute), func(context.Context) error {
				for _, n := range w.nodes {
					n.Down()
				}
				return nil
			})})
		till(3*time.Minute + 5*time.Second)
		for _, n := range w.nodes {
			n.Up()
		}
		till(3*time.Minute + 50*time.Second)
		w.want(at(2*time.Minute), at(3*time.Minute), at(3*time.Minute))
		if n := w.count(EventUnrecorded); n != 1 {
			t.Errorf("%d events", n)
		}
		log.Want(t, 1, "the end of a run was not recorded", "attempt=1")
	})
}

// The first look of a new job asks for a bounded number of records.
func TestFirstLookIsBounded(t *testing.T) {
	bubble(t, time.Hour, func(t *testing.T, w *world) {
		var calls atomic.Int32
		for _, n := range w.nodes {
			n.OnCall(func(int, []string) string { calls.Add(1); return "" })
		}
		w.replica("a", plan{schedule: Every(time.Hour), job: []JobOption{AtLeastOnce(3)}})
		time.Sleep(10 * time.Second)
		if w.want(at(time.Hour)); calls.Load() > 3*4*mostTicks {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// A run by hand waits for a look to end, and takes no tick away.
func TestRunNowDuringALook(t *testing.T) {
	bubble(t, 30*time.Minute, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.SlowReplies(5 * time.Millisecond)
		}
		r := w.replica("a", plan{schedule: Every(time.Hour)})
		for range 20 { // a new job looks far back for ticks
			time.Sleep(10 * time.Millisecond)
			if err := r.RunNow(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range w.nodes {
			n.Up()
		}
	})
}
