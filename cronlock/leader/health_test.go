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

// Trouble with a minority of nodes does not fail the probe, nor does a short outage.
func TestHealthOfAQuorum(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		for i := range 15 {
			n := w.nodes[i%3]
			n.Down()
			if i%5 == 0 {
				f.locks.Link.Cut()
			}
			for range 5 {
				time.Sleep(time.Second)
				isErr(w.T, "the leader", l.Check(w.Context()), nil)
				isErr(w.T, "the follower", f.Check(w.Context()), nil)
			}
			n.Up()
			f.locks.Link.Mend()
			time.Sleep(ttl)
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

// An election goes on, whatever made a round of it fail.
func TestElectionGoesOn(t *testing.T) {
	for fault, begin := range map[string]func(w *world, all []*candidate){
		"nodes down":      func(w *world, _ []*candidate) { w.each((*testutil.Node).Down) },
		"nodes hang":      func(w *world, _ []*candidate) { w.each((*testutil.Node).Hang) },
		"nodes emptied":   func(w *world, _ []*candidate) { w.each((*testutil.Node).RestartEmpty) },
		"nodes flushed":   func(w *world, _ []*candidate) { w.each((*testutil.Node).Flush) },
		"nodes restarted": func(w *world, _ []*candidate) { w.each((*testutil.Node).Restart) },
		"scripts refused": func(w *world, _ []*candidate) {
			w.each(func(n *testutil.Node) { n.Refuse("EVALSHA", "NOPERM no permission") })
		},
		"replies lost": func(_ *world, all []*candidate) {
			for _, c := range all {
				c.locks.Link.Lose(1000)
			}
		},
	} {
		t.Run(fault, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				all := w.candidates(3)
				w.leader(taking, all...)
				begin(w, all)
				time.Sleep(time.Minute)
				w.heal()
				w.each(func(n *testutil.Node) { n.Refuse("EVALSHA", "") })
				for _, c := range all {
					c.locks.Link.Lose(0)
				}
				time.Sleep(2 * time.Minute)
				l := w.leader(0, all...)
				time.Sleep(time.Minute)
				w.known(l, all...)
				isErr(w.T, "its health", l.Check(w.Context()), nil)
			})
		})
	}
}
