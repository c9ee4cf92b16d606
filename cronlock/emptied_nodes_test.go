package cronlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

// A tick whose end is on record is over even if all nodes lost its start during the run. That holds for a replica that
// was there before the run, for a replica that has been cut off since the beginning of the run, and for a replica that
// starts during the run.
func TestReplicasAfterAllNodesWereEmptied(t *testing.T) {
	race.SkipSweep(t)
	for _, most := range []int{1, 2} {
		bubbleOf(t, fmt.Sprint(most), 59*time.Minute, func(t *testing.T, w *world) {
			p := plan{schedule: Every(time.Hour), work: hold(6 * time.Minute), job: []JobOption{WithGrace(15 * time.Minute), AtLeastOnce(most)}}

			all := w.replicas(3, p)
			till(time.Hour + 30*time.Second)
			w.want(at(time.Hour))

			cut := all[0]
			if cut.activeRuns.Load() > 0 { // this replica runs the tick
				cut = all[1]
			}

			cut.locks.Link.Cut()
			for _, n := range w.nodes {
				time.Sleep(time.Minute)
				n.RestartEmpty()
			}

			w.replica("new", p)
			till(time.Hour + 8*time.Minute)
			cut.locks.Link.Restore()

			till(90 * time.Minute)
			w.want(at(time.Hour))
			past, err := cut.History(t.Context(), 1)
			if err != nil || len(past) != 1 || past[0].Ended.IsZero() {
				t.Errorf("history: %+v, %v", past, err)
			}
		})
	}
}
