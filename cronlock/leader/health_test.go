package leader_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// sick waits until the probe fails, and says how long that took.
func (w *world) sick(c *candidate, limit time.Duration) time.Duration {
	w.Helper()
	return await(w.T, limit, "the probe fails", func() bool { return c.Check(w.Context()) != nil })
}

// healthy waits until the probe passes.
func (w *world) healthy(c *candidate, limit time.Duration) {
	w.Helper()
	await(w.T, limit, "the probe passes", func() bool { return c.Check(w.Context()) == nil })
}

// The probe fails when no quorum has answered for as long as the TTL, and passes again when one does, whether the process
// leads or not.
func TestHealth(t *testing.T) {
	bubble(t, 3, func(w *world) {
		c, other := w.pair()
		for range 4 {
			time.Sleep(time.Minute)
			isErr(w.T, "in peace", c.Check(w.Context()), nil)
			c.locks.Link.Cut()
			if d := w.sick(c, 3*ttl); d < ttl/3 || d > ttl+5*time.Second {
				w.Errorf("it took %v until the probe failed", d)
			}
			time.Sleep(time.Minute)
			if err := c.Check(w.Context()); !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrLost) {
				w.Errorf("cut off: %v", err)
			}
			_, err := c.Leader(w.Context())
			isErr(w.T, "who leads", err, core.ErrUnavailable)
			isErr(w.T, "the other one", other.Check(w.Context()), nil)
			c.locks.Link.Mend()
			w.healthy(c, 5*time.Second) // from now on it follows
		}
	})
}

// A process that has never reached a quorum fails the probe after a TTL, and logs once that nobody can be elected.
func TestWithoutNodes(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var log logbook.Book
		locks := w.first.Replica(core.WithLogger(log.Logger()))
		w.each((*testutil.Node).Down)
		c := w.candidateOn("c", locks)
		w.sick(c, ttl+5*time.Second) // the first round that fails has to time out, and the last one
		isErr(w.T, "without nodes", c.Check(w.Context()), core.ErrUnavailable)
		time.Sleep(5 * time.Minute)
		if c.leads() || len(c.reigns()) > 0 {
			w.Error("elected without nodes")
		}
		log.Want(w.T, 1, "no leader can be elected")
		w.heal()
		w.healthy(c, 5*time.Second)
		w.leader(taking, c)
	})
}
