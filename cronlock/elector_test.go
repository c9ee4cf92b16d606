package cronlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
)

// leads waits until one of them leads, and returns it.
func (w *world) leads(all ...*replica) *replica {
	w.t.Helper()
	for range 2 * 60 * 100 {
		for _, r := range all {
			if r.elector.IsLeader(w.t.Context()) == nil {
				return r
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatal("nobody leads")
	return nil
}

// others returns all but one.
func others(but *replica, all []*replica) (rest []*replica) {
	for _, r := range all {
		if r != but {
			rest = append(rest, r)
		}
	}
	return rest
}

// revoke ends the term of the leader, as an operator does.
func (w *world) revoke() {
	w.t.Helper()
	key := core.Key("cron-leader", "group")
	state, err := w.first.Inspect(w.t.Context(), key)
	if err != nil || state.Holder == nil {
		w.t.Fatalf("nobody to revoke: %v", err)
	}
	if _, err := w.first.Revoke(w.t.Context(), key, state.Holder.Token); err != nil {
		w.t.Fatal(err)
	}
}

// onlyFirst makes the first start of a tick do f; all others return at once.
func onlyFirst(tick time.Time, f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if r, _ := FromContext(ctx); r.Attempt == 1 && r.Tick.Equal(tick) {
			return f(ctx)
		}
		return nil
	}
}

// Only the leader starts ticks; the hosts of the others are told so.
func TestOnlyTheLeaderStarts(t *testing.T) {
	withAndWithoutHosts(t, 30*time.Second, func(t *testing.T, w *world, host bool) {
		all := w.replicas(3, plan{elected: true, host: host})
		first := w.leads(all...)
		till(3*time.Minute + 30*time.Second)
		first.elector.Resign()
		second := w.leads(others(first, all)...)
		till(6*time.Minute + 30*time.Second)
		w.want(ticks(midnight, time.Minute, 7)...)
		for _, r := range w.ran() {
			leads := first
			if r.Tick.After(at(3 * time.Minute)) {
				leads = second
			}
			if r.replica != leads.name {
				t.Errorf("tick %v ran on %s, and %s leads", r.Tick, r.replica, leads.name)
			}
		}
		refused := w.refused()
		for _, err := range refused {
			if !errors.Is(err, leader.ErrNotLeader) && !errors.Is(err, core.ErrDone) || !IsExpected(err) {
				t.Errorf("a host was told %v", err)
			}
		}
		if n := w.count(EventNotLeader); host && (n < 12 || len(refused) < 12) || !host && n > 0 {
			t.Errorf("%d events of hosts that do not lead, %d refusals", n, len(refused))
		}
	})
}

// A leader that is cut off seconds before a tick costs nothing but time: the next one looks as soon as it leads.
func TestLeaderCutOffBeforeATick(t *testing.T) {
	withAndWithoutHosts(t, 30*time.Second, func(t *testing.T, w *world, host bool) {
		all := w.replicas(3, plan{elected: true, host: host})
		for i := range 2 {
			till(time.Duration(i+1)*2*time.Minute - 2*time.Second)
			cut := w.leads(all...)
			cut.locks.Link.Cut()
			time.Sleep(ttl)
			next := w.leads(others(cut, all)...)
			term, err := next.elector.Term()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			runs := w.ran()
			last := runs[len(runs)-1]
			if late := last.start.Sub(term.Since); last.replica != next.name || late < 0 || late > 500*time.Millisecond {
				t.Errorf("tick %v started on %s, %v after %s was elected", last.Tick, last.replica, late, next.name)
			}
			cut.locks.Link.Mend()
		}
		till(5*time.Minute + 30*time.Second)
		w.want(ticks(midnight, time.Minute, 6)...)
	})
}

// A term that is lost in mid-run ends the run's context. The next leader starts the tick again while starts are left.
func TestTermLostInARun(t *testing.T) {
	for way, lose := range map[string]func(w *world, r *replica){
		"revoked": func(w *world, _ *replica) { w.revoke() },
		"cut off": func(_ *world, r *replica) { r.locks.Link.Cut() },
	} {
		for starts, again := range map[int]int{1: 0, 2: 1} {
			t.Run(way+map[int]string{1: ", once", 2: ", twice"}[starts], func(t *testing.T) {
				bubble(t, 59*time.Minute, func(t *testing.T, w *world) {
					var cause error
					hang := func(ctx context.Context) error {
						<-ctx.Done()
						cause = context.Cause(ctx)
						return ctx.Err()
					}
					all := w.replicas(3, plan{elected: true, schedule: Every(time.Hour), job: []JobOption{AtLeastOnce(starts)}, work: onlyFirst(at(time.Hour), hang)})
					till(time.Hour + time.Minute)
					first := w.leads(all...)
					lose(w, first)
					time.Sleep(ttl)
					synctest.Wait()
					if !errors.Is(cause, core.ErrLost) {
						t.Errorf("the run's context ended with %v", cause)
					}
					till(time.Hour + 2*time.Minute)
					w.want(append([]time.Time{at(time.Hour)}, ticks(at(time.Hour), 0, again)...)...)
					if runs := w.ran(); len(runs) == 2 && (runs[1].replica == first.name || runs[1].Attempt != 2 || runs[1].FencingToken <= runs[0].FencingToken) {
						t.Errorf("runs: %+v", runs)
					}
					if n := w.count(EventLost); n != 1 {
						t.Errorf("%d events of a lost run", n)
					}
					first.locks.Link.Mend()
				})
			})
		}
	}
}

// A leader is cut off minutes into a run of a job of every minute: the tick is started again, and then the latest.
func TestLeaderCutOffInALongRun(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		all := w.replicas(2, plan{elected: true, job: []JobOption{AtLeastOnce(3)},
			work: onlyFirst(at(time.Minute), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })})
		till(5*time.Minute + 10*time.Second)
		w.leads(all...).locks.Link.Cut()
		till(7*time.Minute + 30*time.Second)
		w.want(at(0), at(time.Minute), at(time.Minute), at(5*time.Minute), at(6*time.Minute), at(7*time.Minute))
		if n := w.count(EventSuperseded); n != 3 {
			t.Errorf("%d events of superseded ticks, want 3", n)
		}
		for _, r := range all {
			r.locks.Link.Mend()
		}
	})
}

// A leader that resigns finishes its run, and starts nothing after it.
func TestResigningLeaderFinishesItsRun(t *testing.T) {
	for way, resign := range map[string]func(r *replica) error{
		"resigned": func(r *replica) error { r.elector.Resign(); return nil },
		"closed":   func(r *replica) error { return r.elector.Close(context.Background()) },
	} {
		t.Run(way, func(t *testing.T) {
			bubble(t, 30*time.Second, func(t *testing.T, w *world) {
				all := w.replicas(3, plan{elected: true, work: onlyFirst(at(time.Minute), hold(150*time.Second))})
				till(90 * time.Second)
				first := w.leads(all...)
				var resigned sync.WaitGroup
				resigned.Go(func() {
					if err := resign(first); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				if err := first.RunDue(t.Context()); !errors.Is(err, leader.ErrNotLeader) {
					t.Errorf("RunDue of one that resigns: %v", err)
				}
				till(5*time.Minute + 30*time.Second)
				resigned.Wait()
				w.want(at(0), at(time.Minute), at(3*time.Minute), at(4*time.Minute), at(5*time.Minute))
				w.wantResigned(first)
			})
		})
	}
}

// wantResigned checks that the second run was the last of that leader, and whole.
func (w *world) wantResigned(first *replica) {
	w.t.Helper()
	runs := w.ran()
	if end := runs[1].end; end.Sub(runs[1].start) < 150*time.Second {
		w.t.Errorf("the run of the leader that resigned ended after %v", end.Sub(runs[1].start))
	}
	if late := runs[2].start.Sub(runs[1].end); late > 500*time.Millisecond {
		w.t.Errorf("the next leader started %v after the end of the run", late)
	}
	for _, r := range runs[2:] {
		if r.replica == first.name {
			w.t.Errorf("tick %v ran on the leader that has resigned", r.Tick)
		}
	}
}

// A run by hand needs no leader, and goes on when one loses its term; it excludes other runs.
func TestRunNowIgnoresTheLeadership(t *testing.T) {
	bubble(t, 57*time.Minute, func(t *testing.T, w *world) {
		all := w.replicas(2, plan{elected: true, schedule: Every(time.Hour), work: hold(30 * time.Second)})
		first := w.leads(all...)
		second := others(first, all)[0]
		if err := second.RunDue(t.Context()); !errors.Is(err, leader.ErrNotLeader) {
			t.Errorf("RunDue of a follower: %v", err)
		}
		var byHand sync.WaitGroup
		for _, r := range []*replica{second, first} {
			time.Sleep(time.Second) // the leader has looked
			byHand.Go(func() {
				if err := r.RunNow(t.Context()); err != nil {
					t.Errorf("RunNow: %v", err)
				}
			})
			time.Sleep(time.Second)
			if err := first.RunNow(t.Context()); !errors.Is(err, core.ErrHeld) {
				t.Errorf("RunNow beside a run: %v", err)
			}
			w.revoke()
			byHand.Wait()
			w.leads(all...)
		}
		till(time.Hour + time.Minute)
		w.want(time.Time{}, time.Time{}, at(time.Hour))
	})
}

// Leaders come and go while a job runs every second: no tick starts too often, no two runs overlap, and none that was
// started and not completed is forgotten while starts are left.
func TestLeadersComeAndGo(t *testing.T) {
	for _, starts := range []int{1, 3} {
		t.Run(fmt.Sprint(starts), func(t *testing.T) {
			bubble(t, 300*time.Millisecond, func(t *testing.T, w *world) {
				all := w.replicas(3, plan{elected: true, schedule: Every(time.Second), job: []JobOption{AtLeastOnce(starts)}, work: hold(600 * time.Millisecond)})
				rng := rand.New(rand.NewPCG(uint64(starts), 1))
				for range 12 {
					time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
					switch first := w.leads(all...); rng.IntN(3) {
					case 0:
						first.elector.Resign()
					case 1:
						w.revoke()
						time.Sleep(ttl) // it leads until it is told
					default:
						first.locks.Link.Cut()
						time.Sleep(ttl)
						first.locks.Link.Mend()
					}
				}
				time.Sleep(20 * time.Second)
				w.wantStarts(starts, true)
				w.wantNoneForgotten(starts)
			})
		})
	}
}

// wantNoneForgotten checks that each tick completed, or used up its starts.
func (w *world) wantNoneForgotten(starts int) {
	w.t.Helper()
	cut, last := map[time.Time]int{}, map[time.Time]error{}
	for _, r := range w.ran() {
		cut[r.Tick]++
		last[r.Tick] = r.err
	}
	for tick, err := range last {
		if err != nil && cut[tick] < starts {
			w.t.Errorf("tick %v was cut off in start %d, and not started again", tick, cut[tick])
		}
	}
}
