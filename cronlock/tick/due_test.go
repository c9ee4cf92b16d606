package tick

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
)

// only is a schedule of one tick.
type only time.Time

func (o only) Next(after time.Time) time.Time {
	if at := time.Time(o); at.After(after) {
		return at
	}
	return time.Time{}
}

func (w *world) alone(schedule interface{ Next(time.Time) time.Time }, work func(context.Context) error, opts ...JobOption) *replica {
	w.t.Helper()
	return w.replica("alone", plan{work: work, job: append([]JobOption{WithSchedule(schedule)}, opts...)})
}

// What is due is the latest tick, however long ago, and what is over by more than the grace is missed.
func TestRunDueRunsTheLatestTick(t *testing.T) {
	race.Campaign(t)
	bubble(t, func(t *testing.T, w *world) {
		r := w.alone(every(time.Hour), nil)
		hour := every(time.Hour).Next(time.Now())
		time.Sleep(time.Until(hour.Add(30 * time.Second)))
		if err := r.RunDue(t.Context()); err != nil {
			t.Error(err)
		}
		w.want(hour)
		if err := r.RunDue(t.Context()); !errors.Is(err, core.ErrDone) || !IsExpected(err) {
			t.Errorf("the second time: %v", err)
		}
		time.Sleep(2*time.Hour + time.Minute)
		if err := r.RunDue(t.Context()); !errors.Is(err, ErrMissed) || IsExpected(err) {
			t.Errorf("past the grace: %v", err)
		}
		w.want(hour)
	})
}

// Days and years ago, too.
func TestDueOfRareTicks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		now := time.Date(2026, 11, 23, 5, 36, 7, 9, time.UTC)
		conf := defaults()
		conf.clock = func() time.Time { return now }
		for _, period := range []time.Duration{time.Second, time.Minute, 36 * time.Hour, 300 * 24 * time.Hour, 4 * 365 * 24 * time.Hour} {
			j := &Job{service: &Service{config: conf, locker: w.first.Locker}, policy: policy{next: every(period).Next}}
			got, ok := j.Due()
			want := now.Truncate(period)
			if !ok || !got.At.Equal(want) || !got.Next.Equal(want.Add(period)) || got.Period != period || !got.Exact {
				t.Errorf("every %v: %+v, want %v", period, got, want)
			}
		}
	})
}

func TestRunDueBeforeAnyTick(t *testing.T) {
	for name, schedule := range map[string]JobOption{
		"none":        jobOption(func(p *policy) { p.next, p.scheduled = nil, false }),
		"none so far": WithSchedule(only(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))),
		"none ever":   WithSchedule(only(time.Time{})),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				r := w.replica("alone", plan{job: []JobOption{schedule}})
				err := r.RunDue(t.Context())
				var refused *Error
				if !errors.Is(err, ErrNotDue) || !errors.As(err, &refused) || refused.Job != "job" || !refused.Tick.IsZero() {
					t.Errorf("%v", err)
				}
				text := strings.TrimSuffix(err.Error(), ": the job has no schedule, see WithSchedule")
				if text != `cronlock: job "job": no tick is due` || (text == err.Error()) == (name == "none") {
					t.Error(text)
				}
			})
		})
	}
}

// After the last tick of a schedule there is no next one, and so no period.
func TestRunDueOfTheLastTick(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		at := time.Now().Add(time.Minute)
		r := w.alone(only(at), nil, WithCatchUp(3))
		time.Sleep(time.Until(at.Add(time.Second)))
		if err := r.RunDue(t.Context()); err != nil {
			t.Error(err)
		}
		w.want(at)
	})
}

func TestErrorOfTheFunction(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		fault := errors.New("fault")
		r := w.alone(every(time.Minute), func(context.Context) error { return fault })
		minute := untilMinute(time.Second)
		err := r.RunDue(t.Context())
		var refused *Error
		if !errors.Is(err, fault) || errors.As(err, &refused) {
			t.Errorf("%v", err)
		}
		err = r.RunDue(t.Context())
		if !errors.Is(err, core.ErrDone) || !errors.As(err, &refused) || !refused.Tick.Equal(minute) {
			t.Errorf("the second time: %v", err)
		}
		for _, part := range []string{`cronlock: job "job", tick ` + stamp(minute), "failed by " + r.service.self} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
		w.want(minute)
	})
}

// A function that panics leaves nothing held: the job is free, and at least once the tick is, too.
func TestPanic(t *testing.T) {
	for name, tt := range map[string]struct {
		policy JobOption
		again  error
	}{
		"at most once":  {AtMostOnce(), core.ErrDone},
		"at least once": {AtLeastOnce(2), nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				first := w.alone(every(time.Minute), func(context.Context) error { panic("on purpose") }, tt.policy)
				other := w.alone(every(time.Minute), nil, tt.policy)
				untilMinute(time.Second)
				func() {
					defer func() {
						if recover() == nil {
							t.Error("no panic")
						}
					}()
					_ = first.RunDue(t.Context())
				}()
				if n := first.Local().Running; n > 0 {
					t.Errorf("%d runs under way", n)
				}
				if err := other.RunDue(t.Context()); !errors.Is(err, tt.again) {
					t.Errorf("the same tick: %v", err)
				}
				untilMinute(time.Second)
				if err := other.RunDue(t.Context()); err != nil {
					t.Errorf("the next tick: %v", err)
				}
			})
		})
	}
}

// A claim that is ended without a call has started nothing.
func TestClaimGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r, other := w.alone(every(time.Minute), nil), w.alone(every(time.Minute), nil)
		minute := untilMinute(time.Second)
		of := Tick{At: minute, Exact: true}
		c, err := r.Claim(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(t.Context(), of); !errors.Is(err, core.ErrHeld) || !IsExpected(err) {
			t.Errorf("while it is claimed: %v", err)
		}
		if err := errors.Join(c.End(), c.End(), c.Err()); err != nil {
			t.Error(err)
		}
		if err := other.Run(t.Context(), of); err != nil {
			t.Errorf("once it was given back: %v", err)
		}
		w.want(minute)
		if runs := w.ran(); len(runs) != 1 || runs[0].Attempt != 1 || w.events.Count("cronlock "+string(EventSkipped)) != 1 {
			t.Errorf("%+v, %v", runs, w.events.Counts())
		}
	})
}

// A run that no tick has caused is recorded nowhere, and does not overlap with one that a tick has.
func TestRunByHand(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		work := func(context.Context) error { time.Sleep(time.Second); return nil }
		r := w.alone(every(time.Minute), work)
		for range 2 {
			if err := r.Run(t.Context(), Tick{}); err != nil {
				t.Error(err)
			}
		}
		go r.Run(t.Context(), Tick{})
		time.Sleep(time.Millisecond)
		if err := r.Run(t.Context(), Tick{}); !errors.Is(err, ErrOverlap) {
			t.Errorf("beside another: %v", err)
		}
		time.Sleep(2 * time.Second)
		if n := len(w.ran()); n != 3 {
			t.Errorf("%d runs", n)
		}
	})
}

// The records of a tick are kept for as many periods whatever the period is, up to a day.
func TestRetentionByPeriod(t *testing.T) {
	const day = 24 * time.Hour
	for period, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Hour, time.Second: time.Hour, 10 * time.Second: 10 * time.Hour, time.Minute: day, day: day,
		31 * day: day, 366 * day: day, 1 << 62: day,
	} {
		j := &Job{service: &Service{config: defaults()}, policy: defaults().policy}
		if got := j.retention(tick{Tick: Tick{Period: period}}); got != want {
			t.Errorf("of a period of %v: %v, want %v", period, got, want)
		}
	}
}

// A tick that is not due for long is not run, although its host calls for it.
func TestTickOfTheFuture(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.alone(every(time.Hour), nil)
		next := every(time.Hour).Next(time.Now())
		if err := r.Run(t.Context(), Tick{At: next, Exact: true, Period: time.Hour}); !errors.Is(err, ErrNotDue) {
			t.Errorf("Run: %v", err)
		}
		w.want()
		time.Sleep(time.Until(next))
		if err := r.RunDue(t.Context()); err != nil {
			t.Error(err)
		}
		w.want(next)
	})
}
