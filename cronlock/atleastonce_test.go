package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// The end of a run that no quorum records is told of, and the tick is started again.
func TestEndThatIsNotRecorded(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		var log logbook.Book
		w.replica("a", plan{core: []core.Option{core.WithLogger(log.Logger())}, job: []JobOption{AtLeastOnce(2)},
			work: onlyFirst(at(3*time.Minute), func(context.Context) error {
				for _, n := range w.nodes {
					n.Down()
				}
				return nil
			})})
		till(3*time.Minute + 5*time.Second)
		for _, n := range w.nodes {
			n.Up()
		}
		till(3*time.Minute + 50*time.Second)
		w.want(at(2*time.Minute), at(3*time.Minute), at(3*time.Minute))
		if n := w.count(EventUnrecorded); n != 1 {
			t.Errorf("%d events", n)
		}
		log.Want(t, 1, "the end of a run was not recorded", "attempt=1")
	})
}

// The run of a rare job that dies is made good for, however long after.
func TestRareJobDies(t *testing.T) {
	for _, tab := range []string{"0 0 * * *", "0 0 1 * *", "0 0 1 1 *"} {
		t.Run(tab, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, w *world) {
				dies := func(ctx context.Context) error {
					if r, _ := FromContext(ctx); r.Attempt == 1 {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
				p := plan{schedule: Crontab(tab, time.UTC), job: []JobOption{AtLeastOnce(2)}, work: dies}
				a := w.replica("a", p)
				till(5 * time.Minute)
				a.crash()
				till(30 * time.Minute)
				w.replica("b", p)
				till(31 * time.Minute)
				w.want(midnight, midnight)
			})
		})
	}
}

// A run that outlasts a hundred ticks is made good for as long as its tick is among the last hundred.
func TestWalkIsBounded(t *testing.T) {
	for _, c := range []struct {
		dies  time.Duration
		again bool
	}{{90 * time.Minute, true}, {110 * time.Minute, false}} {
		t.Run(c.dies.String(), func(t *testing.T) {
			bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
				p := plan{job: []JobOption{AtLeastOnce(2)}, work: func(ctx context.Context) error {
					if r, _ := FromContext(ctx); r.Tick.Equal(at(2*time.Minute)) && r.Attempt == 1 {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}}
				a := w.replica("a", p)
				till(2*time.Minute + c.dies)
				a.crash()
				w.replica("b", p)
				time.Sleep(30 * time.Second)
				again := 0
				for _, r := range w.ran() {
					if r.Attempt == 2 {
						again++
					}
				}
				if (again == 1) != c.again {
					t.Errorf("%d second starts", again)
				}
			})
		})
	}
}

// The first look of a new job asks for a bounded number of records.
func TestFirstLookIsBounded(t *testing.T) {
	bubble(t, time.Hour, func(t *testing.T, w *world) {
		var calls atomic.Int32
		for _, n := range w.nodes {
			n.OnCall(func(int, []string) string { calls.Add(1); return "" })
		}
		w.replica("a", plan{schedule: Every(time.Hour), job: []JobOption{AtLeastOnce(3)}})
		time.Sleep(10 * time.Second)
		if w.want(at(time.Hour)); calls.Load() > 3*4*mostTicks {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// A completed tick is not run again where one node of the quorum that has its record is down.
func TestRecordOnABareQuorum(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		p := plan{schedule: Every(10 * time.Minute), job: []JobOption{AtLeastOnce(3)}}
		p.work = func(context.Context) error { w.nodes[2].Down(); return nil }
		a := w.replica("a", p)
		till(10*time.Minute + 30*time.Second)
		a.end()
		w.nodes[2].Up()
		w.nodes[0].Down()
		p.work = nil
		w.replica("b", p)
		till(12 * time.Minute)
		w.want(at(10 * time.Minute))
	})
}

// Previous is remembered for as long as the job fails.
func TestPreviousOfAJobThatFails(t *testing.T) {
	bubble(t, 2*time.Second, func(t *testing.T, w *world) {
		w.replica("a", plan{schedule: Every(time.Second), work: func(ctx context.Context) error {
			if r, _ := FromContext(ctx); r.Tick.After(at(5 * time.Second)) {
				return errors.New("no paper")
			}
			return nil
		}})
		till(mostTicks*time.Second + 20*time.Second)
		for _, r := range w.ran() {
			want := min(r.Tick.Add(-time.Second).Unix(), at(5*time.Second).Unix())
			if r.Tick.After(at(3*time.Second)) && r.Previous.Unix() != want {
				t.Errorf("tick %v: the previous is %v", r.Tick, r.Previous)
			}
		}
		if n := len(w.ran()); n < mostTicks+15 {
			t.Errorf("%d runs", n)
		}
	})
}

// A run by hand waits for a look to end, and takes no tick away.
func TestRunNowDuringALook(t *testing.T) {
	bubble(t, 30*time.Minute, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.SlowReplies(5 * time.Millisecond)
		}
		r := w.replica("a", plan{schedule: Every(time.Hour)})
		for range 20 { // a new job looks far back for ticks
			time.Sleep(10 * time.Millisecond)
			if err := r.RunNow(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range w.nodes {
			n.Up()
		}
	})
}

// What the history tells of a tick that was started again is of one start.
func TestHistoryOfASecondStart(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		p := plan{job: []JobOption{AtLeastOnce(2)}, work: onlyFirst(at(3*time.Minute), hold(time.Minute))}
		a := w.replica("a", p)
		till(3*time.Minute + 5*time.Second)
		a.crash()
		p.work = hold(5 * time.Second)
		b := w.replica("b", p)
		for i, after := range []time.Duration{15 * time.Second, 30 * time.Second} { // it runs, and has completed
			till(3*time.Minute + after)
			past, err := b.History(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			runs := w.ran()
			again := runs[len(runs)-1]
			got := past[0]
			if got.Attempt != 2 || again.Attempt != 2 || got.By != b.service.self || again.start.Sub(got.Started).Abs() > time.Second || got.Ended.IsZero() != (i == 0) {
				t.Errorf("%v after the tick: %+v of %+v", after, got, again)
			}
		}
	})
}

// The history of a job tells what became of its ticks.
func TestHistory(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{job: []JobOption{AtLeastOnce(2)}, work: func(ctx context.Context) error {
			run, _ := FromContext(ctx)
			switch {
			case run.Tick.Equal(at(3 * time.Minute)):
				return errors.New(strings.Repeat("é", 300))
			case run.Tick.Equal(at(4 * time.Minute)):
				return hold(190 * time.Second)(ctx)
			case run.Tick.Equal(at(8 * time.Minute)):
				return hold(time.Minute)(ctx)
			}
			return nil
		}})
		till(8*time.Minute + 30*time.Second)
		past, err := r.History(t.Context(), 100)
		if err != nil || len(past) != 100 {
			t.Fatalf("%d ticks: %v", len(past), err)
		}
		var got []string
		for _, p := range past[:8] {
			got = append(got, fmt.Sprintf("%s attempt=%d by=%v ended=%v error=%d superseded=%v", p.Tick.Format("15:04"), p.Attempt, p.By != "", !p.Ended.IsZero(), len(p.Error), p.Superseded))
		}
		want := []string{
			"00:08 attempt=1 by=true ended=false error=0 superseded=false",
			"00:07 attempt=1 by=true ended=true error=0 superseded=false",
			"00:06 attempt=0 by=false ended=false error=0 superseded=true",
			"00:05 attempt=0 by=false ended=false error=0 superseded=true",
			"00:04 attempt=1 by=true ended=true error=0 superseded=false",
			"00:03 attempt=1 by=true ended=true error=200 superseded=false",
			"00:02 attempt=1 by=true ended=true error=0 superseded=false",
			"00:01 attempt=0 by=false ended=false error=0 superseded=true",
		}
		if !slices.Equal(got, want) {
			t.Errorf("history:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, n := range []int{0, 101} {
			if _, err := r.History(t.Context(), n); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("a history of %d: %v", n, err)
			}
		}
	})
}

// A job whose process dies in every run uses up its starts, and then it is the next tick's turn.
func TestKilledInEveryRun(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		p := plan{schedule: Every(10 * time.Minute), job: []JobOption{AtLeastOnce(3)}, work: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		till(10*time.Minute - 2*time.Second)
		for i := range 6 {
			r := w.replica(fmt.Sprint(i), p)
			if i == 3 {
				till(19*time.Minute + 30*time.Second)
				w.want(ticks(at(10*time.Minute), 0, 3)...)
				till(20 * time.Minute)
			}
			time.Sleep(ttl + 5*time.Second) // the one before is dead, and its lease is over
			r.crash()
		}
		till(25 * time.Minute)
		w.want(append(ticks(at(10*time.Minute), 0, 3), ticks(at(20*time.Minute), 0, 3)...)...)
		for i, r := range w.ran() {
			if r.Attempt != i%3+1 {
				t.Errorf("start %d is attempt %d of tick %v", i, r.Attempt, r.Tick)
			}
		}
	})
}

// How often a tick may start is settled by who started it first, and by who would start it again: the smaller number.
func TestStartsChangeInADeploy(t *testing.T) {
	once, thrice := plan{}, plan{job: []JobOption{AtLeastOnce(3)}}
	for name, plans := range map[string][2]plan{"raised": {once, thrice}, "lowered": {thrice, once}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 4*time.Minute, func(t *testing.T, w *world) {
				before, after := plans[0], plans[1]
				before.schedule, after.schedule = Every(5*time.Minute), Every(5*time.Minute)
				before.work = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				a := w.replica("a", before)
				till(5*time.Minute + time.Second)
				a.crash()
				w.replica("b", after)
				till(11 * time.Minute)
				w.want(at(5*time.Minute), at(10*time.Minute))
			})
		})
	}
}
