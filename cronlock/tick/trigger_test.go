package tick

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A trigger is one run for all replicas, however many are asked, and however often.
func TestTrigger(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.replicas(3, plan{period: time.Minute, work: func(context.Context) error { time.Sleep(time.Second); return nil }})
		time.Sleep(10 * time.Second)
		var wg sync.WaitGroup
		for _, m := range all {
			wg.Go(func() { m.trigger("once") })
		}
		wg.Wait()
		asked := time.Now()
		time.Sleep(2 * time.Second)
		all[0].trigger("once")
		all[1].trigger("")
		time.Sleep(5 * time.Second)
		all[1].trigger("")
		time.Sleep(5 * time.Minute)
		w.replica("3", plan{period: time.Minute})
		all[2].trigger("once")
		time.Sleep(5 * time.Minute)
		once := w.triggered("once")
		if len(once) != 1 || once[0].start.Sub(asked) > time.Second || once[0].Tick.After(once[0].start) || once[0].FencingToken == 0 {
			t.Errorf("started %v for triggers at %v", once, asked)
		}
		extra, ticks := 0, 0
		for _, s := range w.ran() {
			if s.Trigger != "" {
				extra++
			} else {
				ticks++
			}
		}
		if extra != 3 || ticks != 10 {
			t.Errorf("%d ids ran, and %d ticks", extra, ticks)
		}
		if b := all[2].service.known(); len(b.Triggers) != 3 {
			t.Errorf("recorded are %v", b.Triggers)
		}
		if n := w.events.Count("cronlock " + string(EventRerun)); n > 0 {
			t.Errorf("%d reruns", n)
		}
		if n := w.events.Count("cronlock " + string(EventMissed)); n > 0 {
			t.Errorf("%d missed", n)
		}
	})
}

// One whose replica dies in mid-run is run again by another, if the policy of the job wants that.
func TestTriggerWhoseReplicaDies(t *testing.T) {
	for _, attempts := range []int{1, 2} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				p := plan{job: []JobOption{AtLeastOnce(attempts)}}
				w.replica("0", p)
				w.replica("1", p)
				a := w.replica("a", plan{job: p.job, work: hang})
				time.Sleep(time.Second) // they have looked, and do not look just now
				a.trigger("id")
				time.Sleep(5 * time.Minute)
				a.crash()
				time.Sleep(time.Minute)
				got := w.triggered("id")
				if len(got) != attempts || got[0].replica != "a" || got[attempts-1].Attempt != attempts {
					t.Errorf("started %v", got)
				}
			})
		})
	}
}

// One that its replica cannot start is heard of by the others.
func TestTriggerIsHeard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.replica("0", plan{})
		no := Host{Run: func(context.Context, func(context.Context) (*Claim, error)) error { return errors.New("stopped") }, Has: func() bool { return true }}
		w.replica("a", plan{job: []JobOption{WithHost(no)}}).trigger("id")
		time.Sleep(5 * time.Second)
		if got := w.triggered("id"); len(got) != 1 || got[0].replica != "0" {
			t.Errorf("started %v", got)
		}
		time.Sleep(time.Minute)
	})
}

// With an elector it is the leader's, whoever is asked, and its successor's if it dies.
func TestTriggerIsTheLeaders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		hangs := false
		all := w.replicas(3, plan{elected: true, job: []JobOption{AtLeastOnce(2)}, work: func(ctx context.Context) error {
			mu.Lock()
			hang := hangs
			hangs = false
			mu.Unlock()
			if hang {
				<-ctx.Done()
			}
			return ctx.Err()
		}})
		first := awaitLeader(t, all...)
		followers := all[:0:0]
		for _, m := range all {
			if m != first {
				followers = append(followers, m)
			}
		}
		time.Sleep(time.Second)
		followers[0].trigger("a")
		followers[1].trigger("a")
		time.Sleep(5 * time.Second)
		if got := w.triggered("a"); len(got) != 1 || got[0].replica != first.name {
			t.Errorf("started %v, %s leads", got, first.name)
		}
		if n := w.events.Count("cronlock " + string(EventNotLeader)); n > 0 {
			t.Errorf("followers have tried %d times", n)
		}
		mu.Lock()
		hangs = true
		mu.Unlock()
		first.trigger("b")
		time.Sleep(5 * time.Second)
		first.crash()
		second := awaitLeader(t, followers...)
		time.Sleep(30 * time.Second)
		if got := w.triggered("b"); len(got) != 2 || got[1].replica != second.name || got[1].Attempt != 2 {
			t.Errorf("started %v, %s leads", got, second.name)
		}
		if got := w.triggered("a"); len(got) != 1 {
			t.Errorf("started %v", got)
		}
	})
}

// A trigger waits for a run that goes on, within the misfire grace; ticks that fall due in its own run are skipped, as in
// any other.
func TestTriggerMeetsARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		began := time.Now()
		m := w.replica("0", plan{period: time.Minute, work: func(context.Context) error { time.Sleep(50 * time.Second); return nil }})
		time.Sleep(70 * time.Second) // ten seconds into the run
		m.trigger("id")
		time.Sleep(2 * time.Minute)
		got := w.triggered("id")
		if len(got) != 1 || time.Duration(got[0].start.Second())*time.Second < 50*time.Second {
			t.Fatalf("started %v", got)
		}
		if n := w.within(began.Add(90*time.Second), began.Add(150*time.Second)); n > 0 {
			t.Errorf("a tick was not skipped: %v", w.ran())
		}
		time.Sleep(2 * time.Minute)
	})
}

// What cannot be recorded, or is not to be, is an error.
func TestTriggerRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.replica("0", plan{job: []JobOption{WithOverlap(Allow)}})
		if err := m.Trigger(t.Context(), strings.Repeat("x", maxTriggerLen+1)); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("an id that is too long: %v", err)
		}
		for range boardKeeps {
			m.trigger("")
		}
		if err := m.Trigger(t.Context(), ""); err == nil {
			t.Error("one too many")
		}
		w.do(m.Pause) // has room
		time.Sleep(2 * time.Minute)
		m.trigger("later")
		time.Sleep(time.Second)
		if n := len(w.ran()); n != boardKeeps+1 {
			t.Errorf("%d runs", n)
		}
		m.end()
		for _, f := range []func(context.Context) error{m.Pause, m.Resume, func(ctx context.Context) error { return m.Trigger(ctx, "") }} {
			if err := f(t.Context()); !errors.Is(err, core.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// What a record could not name is refused: another job would be paused, and another trigger count as this one.
func TestNamesOfRecords(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.alone(every(time.Minute), nil)
		if _, err := r.service.Add("caf\xe9", r.work); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("Add: %v", err)
		}
		if err := r.Trigger(t.Context(), "caf\xe9"); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("Trigger: %v", err)
		}
		if err := r.Trigger(t.Context(), "café/\x00\u2028"); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		if all := w.ran(); len(all) != 1 || all[0].Trigger != "café/\x00\u2028" {
			t.Errorf("%+v", all)
		}
	})
}
