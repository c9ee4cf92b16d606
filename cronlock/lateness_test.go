package cronlock

import (
	"errors"
	"testing"
	"time"
)

// The instant of a call decides whether a tick is too late. The tick starts even if its grace ends while the call waits
// for other polls or for slow nodes. A call after the end of the grace starts nothing.
func TestLatenessIsThatOfTheCall(t *testing.T) {
	const grace = 11 * time.Second
	for name, c := range map[string]struct {
		after time.Duration // from the tick to the call
		trip  time.Duration // the time of each round trip
		turn  time.Duration // from the call until it gets a poll slot
		own   bool          // another call of the same job is in the way, not calls of other jobs
		want  error
	}{
		"slow nodes":                {after: grace - 500*time.Millisecond, trip: 800 * time.Millisecond},
		"other jobs have the turns": {after: grace - 500*time.Millisecond, turn: 3 * time.Second},
		"another call has the turn": {after: grace - 500*time.Millisecond, turn: 3 * time.Second, own: true},
		"too late":                  {after: grace + 200*time.Millisecond, want: ErrMissed},
		"too late, and slow nodes":  {after: grace + 200*time.Millisecond, trip: 800 * time.Millisecond, want: ErrMissed},
	} {
		bubbleOf(t, name, time.Minute, func(t *testing.T, w *world) {
			const tick = 3 * time.Minute
			r := w.replica("a", plan{schedule: At(at(time.Minute), at(tick)), job: append([]JobOption{WithGrace(grace)}, uncalled...)})
			if err := r.RunDue(t.Context()); err != nil { // the replica now knows the ticks so far
				t.Fatal(err)
			}

			till(tick + c.after)
			r.far(c.trip)
			switch {
			case c.own:
				r.pollSlot <- struct{}{}
				time.AfterFunc(c.turn, func() { <-r.pollSlot })
			case c.turn > 0:
				r.takeTurns()
				time.AfterFunc(c.turn, func() { <-r.service.pollSlots })
			}

			if err := r.RunDue(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("RunDue: %v, want %v", err, c.want)
			}
			r.locks.Link.OnRequest(nil)
			if c.want == nil {
				runs := w.ran()
				if len(runs) != 2 || runs[1].start.Before(at(tick+grace)) {
					t.Errorf("ran %+v, want the second run after the end of the grace", runs)
				}
				return
			}

			time.Sleep(time.Minute)
			w.want(at(time.Minute))
		})
	}
}
