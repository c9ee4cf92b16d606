package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// Each outage is logged, not only the first, also on a replica that runs no tick in between.
func TestEachOutageIsLogged(t *testing.T) {
	race.SkipSweep(t)
	for name, host := range map[string]bool{"engine": false, "host": true} {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			var log logbook.Book
			w.replica("a", plan{})
			b := w.replica("b", plan{host: host, core: []core.Option{core.WithLogger(log.Logger())}})
			slow := func() { // from then on b finds each tick done
				b.locks.Link.OnRequest(func(redis.Cmder) testutil.Action { return testutil.Action{Delay: 100 * time.Millisecond} })
			}

			for outage := range 3 {
				began := time.Duration(10*outage) * time.Minute
				till(began + 2*time.Minute + 30*time.Second)
				b.locks.Link.Cut()
				till(began + 5*time.Minute + 30*time.Second)
				b.locks.Link.Restore()
				slow()

				log.Want(t, outage+1, "a tick cannot start")
			}
		})
	}
}

// Superseded ticks are logged once an hour for each job, with their number.
func TestSupersededTicksAreLogged(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var log logbook.Book
		w.replica("a", plan{schedule: Every(10 * time.Second), work: hold(35 * time.Second), core: []core.Option{core.WithLogger(log.Logger())}})
		till(30 * time.Minute)
		log.Want(t, 1, "ticks were superseded", "job=job", "ticks=")
		till(63 * time.Minute)
		log.Want(t, 2, "ticks were superseded", "job=job")
	})
}

// New nodes do not vote for a time. That is not reported as an outage, neither by an event nor in the log. The later
// loss of a quorum is reported by an event.
func TestNewNodesAreNoOutage(t *testing.T) {
	bubble(t, 0, func(t *testing.T, w *world) {
		var log logbook.Book
		var events locktest.Events
		nodes := testutil.NewNodes(t, 3)
		locks := locktest.NewOn(t, nodes, core.WithRestartGuard(true), core.WithObserver(events.Observer()), core.WithLogger(log.Logger()))
		for _, n := range nodes {
			n.RestartEmpty()
		}

		s, err := New(locks.Locker, "service")
		if err != nil {
			t.Fatal(err)
		}
		var ran atomic.Int32
		if _, err := s.Add("job", Every(5*time.Second), func(context.Context) error { ran.Add(1); return nil }); err != nil {
			t.Fatal(err)
		}

		time.Sleep(30 * time.Second)
		if n := events.Count("cronlock tick_unavailable"); n != 0 || ran.Load() == 0 {
			t.Errorf("%d times unavailable, %d runs", n, ran.Load())
		}
		log.Want(t, 0, "a tick cannot start")

		for _, n := range nodes {
			n.RestartEmpty()
		}
		time.Sleep(9 * time.Second)
		if n := events.Count("cronlock tick_unavailable"); n == 0 {
			t.Error("a restart of all nodes is not counted")
		}

		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An error without text counts as a failure: History shows it, and Previous stays before it. The text of an error is
// recorded as valid UTF-8.
func TestErrorsAreRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no text": {errors.New(""), "an error without text"},
		"invalid": {errors.New("\xff"), "?"},
	} {
		bubbleOf(t, name, 90*time.Second, func(t *testing.T, w *world) {
			r := w.replica("a", plan{job: []JobOption{AtLeastOnce(2)}, work: func(ctx context.Context) error {
				if run, _ := FromContext(ctx); run.Tick.Equal(at(2 * time.Minute)) {
					return c.err
				}
				return nil
			}})

			till(3*time.Minute + 30*time.Second)

			past, err := r.History(t.Context(), 2)
			if err != nil || past[1].Error != c.want || past[1].Ended.IsZero() {
				t.Errorf("history: %+v, %v", past, err)
			}
			if runs := w.ran(); len(runs) != 3 || !runs[2].Previous.Equal(at(time.Minute)) {
				t.Errorf("ran %+v", runs)
			}
		})
	}
}

// If replicas that have started a tick disagree about AtLeastOnce, the smallest number counts, not the first replica's.
func TestSmallestNumberOfStartsCounts(t *testing.T) {
	bubble(t, 90*time.Second, func(t *testing.T, w *world) {
		dies := func(most int) {
			r := w.replica("one", plan{schedule: At(at(2 * time.Minute)), job: []JobOption{AtLeastOnce(most)}, work: hold(time.Hour)})
			before := len(w.ran())
			for len(w.ran()) == before {
				time.Sleep(time.Second)
			}
			r.locks.Link.Kill()
			r.stop()
		}

		dies(5)
		dies(2)

		third := w.replica("third", plan{schedule: At(at(2 * time.Minute)), job: []JobOption{AtLeastOnce(5)}})
		till(10 * time.Minute)
		w.want(at(2*time.Minute), at(2*time.Minute))
		if err := third.RunDue(t.Context()); !errors.Is(err, core.ErrDone) {
			t.Errorf("RunDue: %v", err)
		}
	})
}

// History does not fail while a start or an end is being recorded.
func TestHistoryBesideAStart(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		a, b := w.replica("a", plan{}), w.replica("b", plan{job: uncalled})
		till(80 * time.Second)

		var n atomic.Int32
		a.locks.Link.OnRequest(func(redis.Cmder) testutil.Action {
			if n.Add(1)%3 != 0 { // every third request is fast, so that a start is on record at one node first
				return testutil.Action{Delay: 40 * time.Millisecond}
			}
			return testutil.Action{}
		})

		for tick := 2 * time.Minute; tick <= 4*time.Minute; tick += time.Minute {
			till(tick)
			for time.Now().Before(at(tick + 2*time.Second)) { // meanwhile the start and the end are recorded
				if _, err := b.History(t.Context(), 2); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}

		if runs := w.ran(); len(runs) < 3 {
			t.Errorf("ran %+v", runs)
		}
		a.locks.Link.OnRequest(nil)
	})
}

// Names that are not valid UTF-8 are refused.
func TestNamesAreUTF8(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		_, err := New(w.first.Locker, "a\xff")
		wantWords(t, "New", err, `the service name "a\xff" is not valid UTF-8`)
		r := w.replica("a", plan{})
		_, err = r.service.Add("a\xff", Every(time.Minute), r.work)
		wantWords(t, "Add", err, `the job name "a\xff" is not valid UTF-8`)
	})
}

// The starts of a tick are at least a second apart, on all replicas together. So a function that panics for a few
// seconds has starts left when it works again.
func TestStartsOfATickAreApart(t *testing.T) {
	for _, replicas := range []int{1, 4} {
		bubbleOf(t, fmt.Sprint(replicas), 30*time.Second, func(t *testing.T, w *world) {
			p := plan{schedule: At(at(time.Minute)), job: []JobOption{AtLeastOnce(10)}, work: func(context.Context) error {
				if time.Since(at(time.Minute)) < 3*time.Second {
					panic("the database is away")
				}
				return nil
			}}

			all := w.replicas(replicas, p)
			till(time.Minute + 100*time.Millisecond)
			for range 100 { // the hosts call often
				for _, r := range all {
					go func() {
						defer func() { _ = recover() }()
						_ = r.RunDue(t.Context())
					}()
				}
				time.Sleep(50 * time.Millisecond)
			}

			till(10 * time.Minute)
			runs := w.ran()
			if len(runs) < 2 || len(runs) > 5 {
				t.Errorf("ran %+v", runs)
			}

			for i := 1; i < len(runs); i++ {
				// Replicas know the nodes' clocks to within some milliseconds.
				if apart := runs[i].start.Sub(runs[i-1].start); apart < 950*time.Millisecond {
					t.Errorf("start %d follows after %v", i+1, apart)
				}
			}
		})
	}
}
