package tick

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

func arePaused(all []*replica, want bool) {
	for _, m := range all {
		m.isPaused(want)
	}
}

// runsAllTheSame runs the job on each by hand, and triggers it.
func (w *world) runsAllTheSame(all []*replica, before int) {
	w.t.Helper()
	for i, m := range all {
		w.do(func(ctx context.Context) error { return m.Run(ctx, Tick{}) })
		m.trigger(fmt.Sprint(i))
		time.Sleep(time.Second)
	}
	time.Sleep(time.Second)
	if n := len(w.ran()) - before; n != 3+3 {
		w.t.Errorf("%d starts, want 3 by hand and 3 that were triggered: %v", n, w.ran())
	}
}

// Any replica pauses the job on all of them, also on such as start later, and any resumes it. What falls due meanwhile is
// not run later, and what runs goes on.
func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		began := time.Now().Add(time.Second)
		all := w.replicas(3, plan{period: time.Second, job: []JobOption{WithCatchUp(10)}})
		time.Sleep(5*time.Second + 500*time.Millisecond)
		w.do(all[1].Pause)
		w.do(all[2].Pause)
		paused := time.Now()
		before := len(w.ran())
		if n := w.within(began, paused); n != 5 {
			t.Fatalf("%d ticks ran before the pause", n)
		}
		late := w.replica("3", plan{period: time.Second, job: []JobOption{WithCatchUp(10)}})
		time.Sleep(10 * time.Second)
		arePaused(append(all, late), true)
		w.runsAllTheSame(all, before)
		w.do(late.Resume)
		w.do(all[0].Resume)
		resumed := time.Now()
		arePaused(append(all, late), false)
		time.Sleep(10 * time.Second)
		if n := w.within(paused, resumed); n > 0 {
			t.Errorf("%d ticks ran that fell due in the pause", n)
		}
		if n := w.within(resumed, time.Now()); n != 10 {
			t.Errorf("%d ticks ran after the pause", n)
		}
		if n := w.events.Count("cronlock " + string(EventPaused)); n < 13 || n > 14 {
			t.Errorf("%d ticks were skipped: %v", n, w.events.Counts())
		}
		_, err := all[0].Claim(t.Context(), Tick{At: paused.Truncate(time.Second).Add(3 * time.Second), Exact: true})
		if !errors.Is(err, core.ErrDone) || !strings.Contains(err.Error(), string(Paused)) {
			t.Errorf("a tick of the pause: %v", err)
		}
		for _, err := range w.failed() {
			if err != nil && !IsExpected(err) {
				t.Error(err)
			}
		}
	})
}

// Who lets a tick of the pause pass, by a record of its own, does not let another run it later.
func TestPausedTickThatNobodyClaimed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.replica("0", plan{})
		due := time.Now().Add(2 * time.Second)
		time.Sleep(time.Second)
		w.do(m.Pause)
		time.Sleep(2 * time.Second)
		w.do(m.Resume)
		err := m.Run(t.Context(), Tick{At: due, Exact: true})
		if !errors.Is(err, ErrPaused) || !IsExpected(err) {
			t.Errorf("a tick that fell due in the pause: %v", err)
		}
		for _, at := range []time.Time{due.Add(-2 * time.Second), due.Add(2 * time.Second)} {
			time.Sleep(time.Until(at))
			if err := m.Run(t.Context(), Tick{At: at, Exact: true}); err != nil {
				t.Errorf("a tick beside the pause: %v", err)
			}
		}
	})
}

// A run whose replica dies is not run again in a pause: the tick is over.
func TestPauseOfARerun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		at := time.Now()
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		a, b := w.replica("a", plan{job: []JobOption{AtLeastOnce(3)}, work: hang}), w.replica("b", plan{job: []JobOption{AtLeastOnce(3)}})
		a.calls.Go(func() { _ = a.Run(t.Context(), Tick{At: at, Exact: true}) })
		time.Sleep(time.Second)
		if err := b.Run(t.Context(), Tick{At: at, Exact: true}); !errors.Is(err, core.ErrHeld) {
			t.Fatal(err)
		}
		w.do(b.Pause)
		a.crash()
		time.Sleep(30 * time.Second)
		if n := b.Local().Following; len(w.ran()) != 1 || n > 0 {
			t.Errorf("started %v; %d ticks are followed", w.ran(), n)
		}
	})
}

// Whatever the clocks and however slow the nodes, between the return of Pause and the call of Resume no tick starts that was
// claimed then, and what falls due then does not start at all; each does that falls due a while after Resume.
func TestPauseAtAnyMoment(t *testing.T) {
	race.Campaign(t)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			const eve = 23*time.Hour + 59*time.Minute + 30*time.Second // it goes on over the turn of a day
			bubbleOn(t, 3, eve, func(t *testing.T, w *world) { pauseAtAnyMoment(t, w, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func pauseAtAnyMoment(t *testing.T, w *world, r *rand.Rand) {
	var all []*replica
	for i := range 3 {
		all = append(all, w.replica(fmt.Sprint(i), plan{period: time.Second, ahead: time.Duration(r.IntN(600)-300) * time.Millisecond}))
	}
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	for range 8 {
		for _, n := range w.nodes {
			n.Slow(upTo(60 * time.Millisecond))
		}
		from := all[r.IntN(3)]
		time.Sleep(upTo(3 * time.Second))
		w.do(from.Pause)
		paused := time.Now()
		time.Sleep(upTo(3 * time.Second))
		resumes := time.Now()
		w.do(all[r.IntN(3)].Resume)
		resumed := time.Now()
		time.Sleep(4 * time.Second)
		for _, s := range w.ran() {
			within := func(at time.Time, margin time.Duration) bool {
				return at.After(paused) && at.Before(resumes.Add(-margin))
			}
			if s.claimed.After(paused) && within(s.start, 0) || within(s.Tick, 100*time.Millisecond) {
				t.Errorf("tick %v, claimed at %v, started at %v on %s, paused from %v to %v", s.Tick, s.claimed, s.start, s.replica, paused, resumes)
			}
		}
		if n := w.within(resumed.Add(500*time.Millisecond), resumed.Add(3*time.Second+500*time.Millisecond)); n != 3 {
			t.Errorf("%d ticks ran in three seconds after Resume", n)
		}
	}
}

// A pause lasts: for days, for longer than any record, while the replicas are replaced, and while there are none.
func TestPauseLasts(t *testing.T) {
	bubbleOn(t, 1, 0, func(t *testing.T, w *world) {
		p := plan{period: 12 * time.Hour, opts: []Option{WithTriggerPoll(6 * time.Hour)}}
		all := w.replicas(3, p)
		time.Sleep(time.Hour)
		w.do(all[0].Pause)
		time.Sleep(3 * day)
		all[1].isPaused(true)
		all = append(all, w.replica("3", p))
		all[0].end()
		all[2].end()
		time.Sleep(60 * day)
		all[1].end()
		all = append(all, w.replica("4", p))
		all[4].isPaused(true)
		time.Sleep(day)
		all[3].end()
		all[4].end()
		time.Sleep(27 * day)
		last := w.replica("5", p)
		last.isPaused(true)
		time.Sleep(2 * day)
		if n := len(w.ran()); n > 0 {
			t.Errorf("%d runs", n)
		}
		w.do(last.Resume)
		time.Sleep(2 * day)
		if n := len(w.ran()); n != 4 {
			t.Errorf("%d runs in two days", n)
		}
		kept := 0
		for _, k := range w.nodes[0].Keys() {
			if strings.Contains(k, "/5:board/") && strings.Contains(k, "}r:") {
				kept++
			}
		}
		if kept == 0 || kept > 40 {
			t.Errorf("a node keeps %d records of the board", kept)
		}
	})
}

// pauseOrResume has each do one of the two, all at once, and returns how many have paused.
func (w *world) pauseOrResume(all []*replica, r *rand.Rand) (pauses int) {
	var wg sync.WaitGroup
	for _, m := range all {
		f := m.Resume
		if r.IntN(2) == 0 {
			f, pauses = m.Pause, pauses+1
		}
		wg.Go(func() { w.do(f) })
	}
	wg.Wait()
	return pauses
}

// What each of several replicas pauses or resumes at once comes about, and all replicas say the same.
func TestPauseAndResumeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.replicas(3, plan{period: time.Second})
		r := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			pauses := w.pauseOrResume(all, r)
			is, err := all[0].service.paused(t.Context())
			if _, paused := is["job"]; err != nil || paused && pauses == 0 || !paused && pauses == 3 {
				t.Errorf("paused is %v, %v after %d of 3 have paused it", is, err, pauses)
			}
			for _, m := range all {
				m.isPaused(len(is) > 0)
			}
			from := time.Now()
			to := from.Add(2 * time.Second)
			time.Sleep(2*time.Second + 200*time.Millisecond) // replicas wait for a moment before they claim a tick
			if n := w.within(from, to); n != 2*(1-len(is)) {
				t.Errorf("%d ticks ran; paused: %v", n, is)
			}
		}
	})
}

// A pause that a bare quorum has is seen whichever quorum answers, and outlives a node that forgets once somebody has looked.
func TestPauseOnNodesInTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.replicas(3, plan{})
		time.Sleep(time.Second)
		w.nodes[2].Down()
		w.do(all[0].Pause)
		all[0].crash() // whoever looks finds out from the nodes
		w.nodes[2].Up()
		w.nodes[0].Down()
		at := time.Now()
		if err := all[1].Run(t.Context(), Tick{At: at, Exact: true}); !errors.Is(err, ErrPaused) && !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("with another quorum: %v", err)
		}
		time.Sleep(15 * time.Second)
		all[1].isPaused(true)
		w.nodes[0].Up()
		time.Sleep(20 * time.Second)
		w.nodes[1].RestartEmpty()
		all[2].isPaused(true)
		if err := all[2].Run(t.Context(), Tick{At: time.Now(), Exact: true}); !errors.Is(err, ErrPaused) {
			t.Errorf("with a node that forgot: %v", err)
		}
		w.replica("3", plan{}).isPaused(true)
	})
}

// While nobody can tell whether the job is paused, it does not start, except that it is to run anyway; and even then not
// where this replica has heard of a pause.
func TestBoardOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		plain := w.replica("plain", plan{})
		bold := w.replica("bold", plan{job: []JobOption{WithRunAnyway(true)}})
		refuse := func(with string) {
			for _, n := range w.nodes[:2] {
				n.OnRequest(func(args []string) testutil.Action { return testutil.Action{DropRequest: args[0] == with} })
			}
		}
		at := time.Now()
		time.Sleep(time.Second)
		refuse("GET")
		if err := plain.Run(t.Context(), Tick{At: at, Exact: true}); !errors.Is(err, core.ErrUnavailable) || IsExpected(err) {
			t.Errorf("without the board: %v", err)
		}
		if err := plain.Pause(t.Context()); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("Pause: %v", err)
		}
		if err := bold.Run(t.Context(), Tick{At: at, Exact: true}); err != nil {
			t.Errorf("run anyway: %v", err)
		}
		refuse("")
		time.Sleep(10 * time.Second)
		w.do(plain.Pause)
		time.Sleep(5 * time.Second)
		refuse("GET")
		if err := bold.Run(t.Context(), Tick{At: time.Now(), Exact: true}); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("run anyway, in a pause: %v", err)
		}
		refuse("")
		time.Sleep(10 * time.Second)
		w.do(plain.Resume)
		if err := plain.Run(t.Context(), Tick{At: time.Now(), Exact: true}); err != nil {
			t.Errorf("after all: %v", err)
		}
	})
}

// Replicas that do not agree what day it is start one list, and go on with it.
func TestBoardAtTheTurnOfADay(t *testing.T) {
	race.Campaign(t)
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) { boardAtTheTurnOfADay(t, w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// pauseSome has some of the services pause a job each, nearly at once, on nodes that are slow, and returns how many do.
func (w *world) pauseSome(services []*Service, before int, r *rand.Rand) (n int) {
	var wg sync.WaitGroup
	for _, s := range services {
		if r.IntN(2) == 0 {
			continue
		}
		j := newJob(s, fmt.Sprintf("job %d", before+n), nil, s.policy)
		wait := time.Duration(r.IntN(5)) * time.Millisecond
		n++
		wg.Go(func() {
			time.Sleep(wait)
			w.do(j.Pause)
		})
	}
	for _, n := range w.nodes {
		n.Slow(time.Duration(r.IntN(5)) * time.Millisecond)
	}
	wg.Wait()
	return n
}

func boardAtTheTurnOfADay(t *testing.T, w *world, r *rand.Rand) {
	const n = 4
	base := int64(20000)
	var mu sync.Mutex
	services := make([]*Service, n)
	join := func(i int) {
		s, err := New(w.first.Replica().Locker, "service")
		if err != nil {
			t.Fatal(err)
		}
		turned := r.IntN(2) == 0
		s.today = func() int64 {
			mu.Lock()
			defer mu.Unlock()
			if turned {
				return base + 1
			}
			return base
		}
		services[i] = s
	}
	for i := range n {
		join(i)
		if r.IntN(2) == 0 { // it has looked before
			if _, err := services[i].read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := 0
	for range 4 {
		want += w.pauseSome(services, want, r)
		join(r.IntN(n))
		for i, s := range services {
			if all, err := s.paused(t.Context()); err != nil || len(all) != want {
				t.Errorf("service %d, on day %d, says that %v are paused, %v; want %d", i, s.today(), all, err, want)
			}
		}
		mu.Lock()
		base += r.Int64N(3)
		mu.Unlock()
	}
}
