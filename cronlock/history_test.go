package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

// The history of a job has the starts, ends and errors of its ticks, and the superseded ticks.
func TestHistory(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{job: []JobOption{AtLeastOnce(2)}, work: func(ctx context.Context) error {
			run, _ := FromContext(ctx)
			switch {
			case run.Tick.Equal(at(3 * time.Minute)):
				return errors.New(strings.Repeat("é", 300))
			case run.Tick.Equal(at(4 * time.Minute)):
				return hold(190 * time.Second)(ctx)
			case run.Tick.Equal(at(8 * time.Minute)):
				return hold(5 * time.Minute)(ctx)
			}
			return nil
		}})

		till(10*time.Minute + 30*time.Second)
		past, err := r.History(t.Context(), 100)
		if err != nil || len(past) != 100 {
			t.Fatalf("%d ticks: %v", len(past), err)
		}

		var got []string
		for _, p := range past[:10] {
			got = append(got, fmt.Sprintf("%s attempt=%d by=%v ended=%v error=%d superseded=%v", p.Tick.Format("15:04"), p.Attempt, p.By != "", !p.Ended.IsZero(), len(p.Error), p.Superseded))
		}

		want := []string{
			"00:10 attempt=0 by=false ended=false error=0 superseded=false", // the tick may still start
			"00:09 attempt=0 by=false ended=false error=0 superseded=false",
			"00:08 attempt=1 by=true ended=false error=0 superseded=false",
			"00:07 attempt=1 by=true ended=true error=0 superseded=false",
			"00:06 attempt=0 by=false ended=false error=0 superseded=true",
			"00:05 attempt=0 by=false ended=false error=0 superseded=true",
			"00:04 attempt=1 by=true ended=true error=0 superseded=false",
			"00:03 attempt=1 by=true ended=true error=200 superseded=false",
			"00:02 attempt=1 by=true ended=true error=0 superseded=false",
			"00:01 attempt=0 by=false ended=false error=0 superseded=true",
		}

		if !slices.Equal(got, want) {
			t.Errorf("history:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A tick whose replica dies in a long run is started again only if it is still among the last hundred ticks.
func TestWalkIsBounded(t *testing.T) {
	race.SkipSweep(t)
	for _, c := range []struct {
		dies  time.Duration
		again bool
	}{{90 * time.Minute, true}, {110 * time.Minute, false}} {
		bubbleOf(t, c.dies.String(), 2*time.Minute, func(t *testing.T, w *world) {
			p := plan{job: []JobOption{AtLeastOnce(2)}, work: func(ctx context.Context) error {
				if run, _ := FromContext(ctx); run.Attempt > 1 || !run.Tick.Equal(at(2*time.Minute)) {
					return nil
				}
				return hold(3 * time.Hour)(ctx)
			}}

			a := w.replica("a", p)
			till(2*time.Minute + c.dies)
			a.locks.Link.Kill()
			a.stop()
			w.replica("b", p)

			time.Sleep(30 * time.Second)
			again := 0
			for _, r := range w.ran() {
				if r.Attempt == 2 {
					again++
				}
			}

			if (again == 1) != c.again {
				t.Errorf("%d second starts", again)
			}
		})
	}
}
