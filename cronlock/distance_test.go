package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// far makes each round trip of a replica take the time trip.
func (r *replica) far(trip time.Duration) {
	r.locks.Link.OnRequest(func(redis.Cmder) testutil.Action { return testutil.Action{Delay: trip / 2, ReplyDelay: trip / 2} })
}

// farReplica starts a replica that is far from the nodes, and adds a job that is new to it.
func (w *world) farReplica(trip time.Duration, s Schedule, p plan) *replica {
	w.t.Helper()
	p.schedule = At(midnight)
	r := w.replica("far", p)
	r.Remove()
	r.far(trip)
	var err error
	if r.Job, err = r.service.Add("job", s, r.work, p.job...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { r.locks.Link.OnRequest(nil) })
	return r
}

// A new job starts its ticks even if the nodes are far away, and with the shortest grace: the time that a poll takes
// does not make the tick late.
func TestNewJobFarFromTheNodes(t *testing.T) {
	for _, trip := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		for _, short := range []bool{false, true} {
			if short && trip > 200*time.Millisecond { // longer than the node timeout that belongs to the short TTL
				continue
			}
			bubbleOf(t, fmt.Sprintf("%v short=%v", trip, short), 150*time.Second, func(t *testing.T, w *world) {
				var p plan
				if short {
					p = plan{core: []core.Option{core.TTL(3 * time.Second)}, job: []JobOption{WithGrace(4 * time.Second)}}
				}
				w.farReplica(trip, Every(time.Minute), p)
				till(12*time.Minute + 30*time.Second)

				var got []time.Time
				for _, r := range w.ran() {
					got = append(got, r.Tick)
				}
				if want := ticks(at(3*time.Minute), time.Minute, 10); len(got) < 10 || !slices.Equal(got[len(got)-10:], want) {
					t.Errorf("ran %v, want %v", got, want)
				}
			})
		}
	}
}

// A new job starts its first tick even if one node is slow or does not answer.
func TestNewJobBesideASlowNode(t *testing.T) {
	for name, ill := range map[string]func(*testutil.Node){"hangs": (*testutil.Node).Hang, "slow": func(n *testutil.Node) { n.Slow(950 * time.Millisecond) }} {
		bubbleOf(t, name, 50*time.Second, func(t *testing.T, w *world) {
			ill(w.nodes[0])
			r := w.replica("a", plan{job: []JobOption{WithGrace(11 * time.Second)}})
			till(3*time.Minute + 30*time.Second)
			w.nodes[0].Up()
			runs := w.ran()
			if len(runs) < 3 || !runs[len(runs)-3].Tick.Equal(at(time.Minute)) {
				t.Errorf("ran %+v", runs)
			}
			r.end()
		})
	}
}

// A poll reads the records before it acquires the lease, so a run by hand during the first poll of a new job is not
// refused.
func TestRunNowBesideTheFirstLook(t *testing.T) {
	for name, ill := range map[string]func(*replica){
		"far away":     func(r *replica) { r.far(40 * time.Millisecond) },
		"a node hangs": func(r *replica) { r.w.nodes[0].Hang() },
	} {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			r := w.farReplica(0, Every(time.Hour), plan{job: []JobOption{WithGrace(15 * time.Second)}})
			ill(r)
			other := w.replica("other", plan{schedule: Every(time.Hour), job: uncalled})
			for range 10 {
				time.Sleep(300 * time.Millisecond)
				for _, one := range []*replica{r, other} {
					if err := one.RunNow(t.Context()); err != nil {
						t.Errorf("%v: %d runs", err, len(w.ran()))
					}
				}
			}
			w.nodes[0].Up()
		})
	}
}

// A poll that takes as long as the TTL is ended. The next one continues its work.
func TestLookLastsAtMostATTL(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.farReplica(280*time.Millisecond, Every(time.Minute), plan{core: []core.Option{core.TTL(3 * time.Second)}})
		till(5*time.Minute + 30*time.Second)
		if runs := w.ran(); len(runs) < 4 || !runs[len(runs)-1].Tick.Equal(at(5*time.Minute)) {
			t.Errorf("ran %+v; events %v", runs, w.events.Counts())
		}
		r.locks.Link.OnRequest(nil)
	})
}

// A poll ends after a TTL, however much it has to read, and the next polls continue its work. The number of requests
// for a record is random, so one poll is sometimes enough. The test then tries again.
func TestLooksGoOnWhereTheLastOneWas(t *testing.T) {
	t.Parallel()
	race.SkipSweep(t)
	const most = 30
	for range most {
		ended := 0
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(30 * time.Second)
			ended = newWorld(t).looksThroughMuch()
		})
		if ended > 0 {
			return
		}
	}
	t.Errorf("no look took as long as the TTL, %d times", most)
}

// looksThroughMuch starts a far replica that has many records to read. It returns how many of its polls end after a TTL
// before the replica starts a tick.
func (w *world) looksThroughMuch() (ended int) {
	const ttl, trip = 3 * time.Second, 290 * time.Millisecond
	// The replica waits a moment before a poll, and records the start after it.
	const most = ttl + dueTolerance + maxSpread + 2*trip
	every := Every(20 * time.Second)
	again := []JobOption{AtLeastOnce(3), WithGrace(time.Hour)}
	a := w.replica("a", plan{schedule: every, job: again, work: func(context.Context) error { panic("no paper") }})
	till(40*time.Minute + 5*time.Second)
	a.end()
	w.nodes[0].RestartEmpty() // records are now on a minority of the nodes: each takes more requests
	w.nodes[1].RestartEmpty()
	time.Sleep(30 * time.Second)

	before := len(w.ran())
	b := w.farReplica(trip, every, plan{core: []core.Option{core.TTL(ttl)}, job: append(again, uncalled...)})
	looks := 0
	for err := error(core.ErrHeld); err != nil && looks < 20; looks++ {
		began := time.Now()
		err = b.RunDue(w.t.Context())
		if errors.Is(err, errPollTimeout) {
			ended++
		}

		// A call that finds a tick also runs it, and records its end.
		took := time.Since(began)
		if runs := w.ran()[before:]; len(runs) > 0 {
			took = runs[0].start.Sub(began)
		}
		if took > most {
			w.t.Errorf("a look took %v: %v", took, err)
		}
		time.Sleep(time.Second)
	}
	if len(w.ran()) != before+1 {
		w.t.Errorf("%d runs after %d looks", len(w.ran())-before, looks)
	}
	return ended
}

// A new replica far from the nodes starts a tick in time even if records are on a minority of the nodes, or ticks had
// many starts.
func TestFirstLookThroughMuchThatIsOpen(t *testing.T) {
	race.SkipSweep(t)
	for name, c := range map[string]struct {
		open  func(w *world, a *replica)
		panic bool
	}{
		"records of a minority": {func(w *world, a *replica) {
			w.nodes[0].RestartEmpty()
			w.nodes[1].RestartEmpty()
		}, false},
		"many starts": {func(*world, *replica) {}, true},
	} {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			p := plan{schedule: Every(20 * time.Second), job: []JobOption{AtLeastOnce(10)}}
			p.work = func(context.Context) error {
				if c.panic {
					panic("no paper")
				}
				return nil
			}

			a := w.replica("a", p)
			till(40 * time.Minute)
			a.end()

			c.open(w, a)
			time.Sleep(30 * time.Second)

			before := len(w.ran())
			began := time.Now()
			w.farReplica(250*time.Millisecond, Every(20*time.Second), plan{})
			time.Sleep(2 * time.Minute)

			runs := w.ran()[before:]
			if len(runs) < 3 || runs[0].start.Sub(began) > 20*time.Second {
				t.Errorf("%d runs: %+v; %v", len(runs), runs, w.events.Counts())
			}
		})
	}
}
