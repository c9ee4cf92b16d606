package cronlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// A replica whose clock is beyond the window starts nothing, and says why, once.
func TestClockBeyondTheWindow(t *testing.T) {
	withAndWithoutHosts(t, 30*time.Second, func(t *testing.T, w *world, host bool) {
		var log logbook.Book
		for _, n := range w.nodes {
			n.StepClock(3 * time.Second)
		}
		r := w.replica("a", plan{host: host, core: []core.Option{core.WithLogger(log.Logger())}})
		till(5*time.Minute + 30*time.Second)
		w.want()
		err := r.RunDue(t.Context())
		if e := new(Error); !errors.As(err, &e) || !errors.Is(err, core.ErrUnavailable) || IsExpected(err) {
			t.Errorf("RunDue: %v", err)
		}
		told := w.refused()
		for _, err := range append(told, err) {
			if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "check NTP") {
				t.Errorf("the host was told %v", err)
			}
		}
		logged := 1 // a host logs what it is told
		if host {
			logged = 0
		}
		if log.Want(t, logged, "a tick cannot start", "check NTP"); host != (len(told) > 5) {
			t.Errorf("the host was told %d times", len(told))
		}
		for _, n := range w.nodes {
			n.StepClock(-3 * time.Second)
		}
		till(8*time.Minute + 30*time.Second)
		if runs := w.ran(); len(runs) < 3 {
			t.Errorf("%d runs after the clocks were set right", len(runs))
		}
	})
}
