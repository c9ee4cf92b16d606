package tick

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// briefly is the work of a run that takes a moment, so that runs can overlap.
func briefly(ctx context.Context) error {
	pause.For(ctx, 200*time.Millisecond)
	return nil
}

// Of the ticks that fell due while no replica ran, the latest run, each once and in their order, unless they may
// overlap, whichever of the replicas that start together have them; but not past the grace.
func TestAllReplicasDown(t *testing.T) {
	const period = 10 * time.Second
	for _, tt := range []struct {
		n       int
		grace   time.Duration
		overlap Overlap
		runs    int
	}{
		{0, time.Minute, Forbid, 0},
		{1, time.Minute, Forbid, 1},
		{3, time.Minute, Forbid, 3},
		{3, time.Minute, Allow, 3},
		{100, 45 * time.Second, Forbid, 5},
		{100, 5 * time.Minute, Forbid, 12},
	} {
		for _, replicas := range []int{1, 3} {
			t.Run(fmt.Sprintf("the latest %d, within %v, %v, %d replicas", tt.n, tt.grace, tt.overlap, replicas), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					p := plan{period: period, work: briefly, job: []JobOption{WithCatchUp(tt.n), WithMisfireGrace(tt.grace), WithOverlap(tt.overlap)}}
					all := w.replicas(replicas, p)
					untilMinute(time.Second)
					for _, r := range all {
						r.end()
					}
					w.forget()
					last := untilMinute(time.Minute + 2*time.Second).Add(time.Minute)
					w.replicas(replicas, p)
					time.Sleep(period - 3*time.Second)
					if tt.overlap == Allow {
						w.sort()
					}
					w.want(ticks(last.Add(-time.Duration(tt.runs-1)*period), period, tt.runs)...)
				})
			})
		}
	}
}

// What a job that is new missed is not run, unless that was asked for.
func TestFirstStart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		untilMinute(time.Second)
		w.replicas(3, plan{period: time.Minute, job: []JobOption{AtLeastOnce(3)}})
		minute := untilMinute(time.Second)
		w.want(minute)
	})
}

// What replicas slept through runs when they wake up.
func TestAllAsleep(t *testing.T) {
	const period = 10 * time.Second
	for _, tt := range []struct {
		name string
		job  []JobOption
		runs int
	}{
		{"default", nil, 1}, // the latest, for which the host calls
		{"0", []JobOption{WithCatchUp(0)}, 1},
		{"the latest 3", []JobOption{WithCatchUp(3)}, 3},
		{"all", []JobOption{WithCatchUp(100)}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				all := w.replicas(3, plan{period: period, work: briefly, job: tt.job})
				minute := untilMinute(time.Second)
				for _, r := range all {
					r.asleep.Store(true)
				}
				w.forget()
				time.Sleep(time.Until(minute.Add(52 * time.Second)))
				for _, r := range all {
					r.asleep.Store(false)
				}
				time.Sleep(5 * time.Second)
				w.want(ticks(minute.Add(time.Duration(6-tt.runs)*period), period, tt.runs)...)
			})
		})
	}
}

// Past the grace, a tick runs again that was started and not completed, also if its leader has never seen it. One that was
// not started does not run.
func TestRerunByALeaderThatWasDown(t *testing.T) {
	for name, cut := range map[string]bool{"started": false, "not started": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				p := plan{period: 10 * time.Minute, elected: true, idle: cut, job: []JobOption{AtLeastOnce(2), WithCatchUp(10)},
					work: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
				time.Sleep(2 * time.Minute) // so that there is nothing to catch up
				first := w.replica("first", p)
				awaitLeader(t, first)
				at := every(p.period).Next(time.Now())
				time.Sleep(time.Until(at.Add(5 * time.Second)))
				first.crash()
				if ran := len(w.ran()); (ran == 0) != cut {
					t.Fatalf("%d runs", ran)
				}
				time.Sleep(2 * time.Minute) // past the grace
				w.forget()
				p.work, p.idle = nil, false
				awaitLeader(t, w.replica("next", p))
				time.Sleep(time.Minute)
				if cut {
					w.want()
					return
				}
				w.want(at)
				if run := w.ran()[0]; run.Attempt != 2 {
					t.Errorf("attempt %d", run.Attempt)
				}
			})
		})
	}
}

// A tick that was refused just when a leader was elected is not left behind: whoever comes second, the refusal or the
// election, sees the other.
func TestTickAtTheMomentOfElection(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.replica("only", plan{period: time.Minute, elected: true, idle: true})
		awaitLeader(t, r)
		minute := untilMinute(5 * time.Second) // it has looked for what it missed, in vain
		w.want()
		c := &Claim{job: r.Job, tick: newTick(Tick{At: minute, Exact: true}, r.policy), scheduled: true}
		c.follow(ErrNotLeader)
		time.Sleep(time.Second)
		w.want(minute)
	})
}

// The same, of a tick that was being followed.
func TestFollowerAtTheMomentOfElection(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		refused := false
		host := Host{Has: plain.Has, Run: func(ctx context.Context, claim func(context.Context) (*Claim, error)) error {
			if !refused {
				refused = true
				return ErrNotLeader // and then it is elected
			}
			return plain.Run(ctx, claim)
		}}
		r := w.replica("only", plan{period: time.Minute, elected: true, idle: true, job: []JobOption{WithHost(host)}})
		awaitLeader(t, r)
		minute := untilMinute(5 * time.Second)
		r.Pursue(Tick{At: minute, Exact: true})
		time.Sleep(time.Second)
		w.want(minute)
	})
}

// The next leader runs a tick for which its own host never called, having been stopped.
func TestNextLeaderWasAsleep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := w.replicas(2, plan{period: time.Minute, elected: true})
		leader := awaitLeader(t, all...)
		next := all[0]
		if next == leader {
			next = all[1]
		}
		next.asleep.Store(true)
		minute := untilMinute(-time.Second)
		leader.crash()
		time.Sleep(50 * time.Second)
		w.want(minute)
		if run := w.ran()[0]; run.replica != next.name {
			t.Errorf("on %s", run.replica)
		}
	})
}

// Ticks before this replica had the job are not the new leader's to run, unless that was asked for.
func TestNewLeaderKeepsToItsOwnTime(t *testing.T) {
	for _, tt := range []struct {
		job  []JobOption
		runs int
	}{{nil, 0}, {[]JobOption{AtLeastOnce(2)}, 0}, {[]JobOption{WithCatchUp(5)}, 1}} {
		t.Run(fmt.Sprint(len(tt.job), tt.runs), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				minute := untilMinute(time.Second)
				awaitLeader(t, w.replica("only", plan{period: time.Minute, elected: true, job: tt.job}))
				time.Sleep(10 * time.Second)
				w.want([]time.Time{minute}[:tt.runs]...)
			})
		})
	}
}

// What fell due in an outage runs once the nodes are back, if it is to be caught up.
func TestOutage(t *testing.T) {
	for _, tt := range []struct {
		name string
		job  []JobOption
		runs int
	}{
		{"at most once", []JobOption{AtMostOnce()}, 0},
		{"at least once", []JobOption{AtLeastOnce(2)}, 1},
		{"caught up", []JobOption{AtMostOnce(), WithCatchUp(1)}, 1},
		{"not caught up", []JobOption{AtLeastOnce(2), WithCatchUp(0)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.replicas(3, plan{period: time.Minute, job: tt.job})
				minute := untilMinute(-time.Second)
				w.forget()
				for _, n := range w.nodes[:2] {
					n.Down()
				}
				time.Sleep(20 * time.Second)
				w.want()
				for _, n := range w.nodes {
					n.Up()
				}
				time.Sleep(35 * time.Second)
				w.want([]time.Time{minute}[:tt.runs]...)
			})
		})
	}
}

// What ran unprotected is recorded nowhere, and is not caught up again.
func TestUnprotectedIsNotCaughtUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.replica("only", plan{period: time.Minute, elected: true, job: []JobOption{WithRunAnyway(true), WithCatchUp(3)}})
		awaitLeader(t, r)
		minute := untilMinute(-20 * time.Second)
		w.forget()
		for _, n := range w.nodes {
			n.Down()
		}
		time.Sleep(25 * time.Second)
		for _, n := range w.nodes {
			n.Up()
		}
		time.Sleep(ttl)
		awaitLeader(t, r)
		time.Sleep(5 * time.Second)
		w.want(minute)
		if run := w.ran()[0]; run.FencingToken != 0 {
			t.Errorf("it ran with token %d", run.FencingToken)
		}
	})
}

// A job that somebody else keeps busy catches up when it is free.
func TestCatchUpWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		other, err := w.first.Acquire(t.Context(), core.Key("cron", "service", "job", "run"))
		if err != nil {
			t.Fatal(err)
		}
		minute := untilMinute(time.Second)
		w.replicas(3, plan{period: time.Minute, job: []JobOption{WithCatchUp(1)}})
		time.Sleep(20 * time.Second)
		w.want()
		if err := other.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		w.want(minute)
	})
}

// A function that ends its goroutine does not end those that follow other ticks.
func TestGoexit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		untilMinute(5 * time.Second)
		at := time.Now().Truncate(time.Minute)
		r := w.replica("a", plan{period: 10 * time.Second, idle: true, job: []JobOption{WithCatchUp(3)},
			work: func(context.Context) error { runtime.Goexit(); return nil }})
		time.Sleep(10 * time.Second)
		w.want(ticks(at.Add(-20*time.Second), 10*time.Second, 3)...)
		if l := r.Local(); l != (Local{}) {
			t.Errorf("%+v", l)
		}
	})
}
