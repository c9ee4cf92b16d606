package cronlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
)

// Three replicas whose host is robfig/cron.
func TestRobfigCron(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b", "c"} {
			r := w.replica(name, plan{host: true})
			r.asleep.Store(true)
			host := cron.New(cron.WithLocation(time.UTC))
			if _, err := host.AddFunc("* * * * *", func() { r.call(t.Context()) }); err != nil {
				t.Fatal(err)
			}
			host.Start()
			t.Cleanup(func() { <-host.Stop().Done() })
		}
		till(7*time.Minute + 30*time.Second)
		w.want(ticks(at(2*time.Minute), time.Minute, 6)...)
	})
}

// A call just before a tick is for it, and waits until it is due.
func TestCallJustBeforeATick(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{host: true})
		r.asleep.Store(true)
		for i := range 5 {
			till(time.Duration(3+i)*time.Minute - 30*time.Millisecond)
			if err := r.RunDue(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w.want(ticks(at(2*time.Minute), time.Minute, 6)...)
	})
}

// A host that is ahead by less than the engine waits for it costs nothing: its early calls count.
func TestHostALittleAhead(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		w.replica("a", plan{host: true, ahead: 400 * time.Millisecond})
		till(6*time.Minute + 30*time.Second)
		w.want(ticks(at(2*time.Minute), time.Minute, 5)...)
		for _, r := range w.ran()[1:] {
			if late := r.start.Sub(r.Tick); late > lookLate/2 {
				t.Errorf("tick %v started %v late", r.Tick, late)
			}
		}
	})
}

// A host that ends its context ends the run: the tick is not completed, and is started again.
func TestHostEndsARun(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		why := errors.New("the host stops")
		var cause error
		r := w.replica("a", plan{host: true, job: []JobOption{AtLeastOnce(2)}, work: onlyFirst(at(3*time.Minute), func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})})
		r.asleep.Store(true)
		till(3*time.Minute + time.Millisecond)
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { stop(why) })
		if err := r.RunDue(ctx); !errors.Is(err, context.Canceled) || !errors.Is(cause, why) {
			t.Errorf("the run ended with %v, and its context with %v", err, cause)
		}
		till(3*time.Minute + 30*time.Second)
		w.want(at(2*time.Minute), at(3*time.Minute), at(3*time.Minute))
		if n := w.count(EventLost); n != 0 {
			t.Errorf("%d events of a lost run", n)
		}
	})
}

// A start that another process has recorded first is not this one's.
func TestStartOfAnother(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		a := w.replica("a", plan{host: true})
		b := w.replica("b", plan{host: true})
		a.asleep.Store(true)
		b.asleep.Store(true)
		till(3*time.Minute + 10*time.Millisecond)
		c, err := a.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := &Claim{job: b.Job, entry: c.entry}
		if mine, err := other.write(t.Context(), b.startKey(c.tick, 1), nil); err != nil || !mine {
			t.Fatalf("%v, %v", mine, err)
		}
		if err := c.Call(); !errors.Is(err, core.ErrDone) {
			t.Errorf("Call: %v", err)
		}
		if err := c.End(); err != nil {
			t.Error(err)
		}
		w.want(at(2 * time.Minute))
	})
}

// A host that calls a claim too often starts its tick once.
func TestCalledTooOften(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{host: true})
		r.asleep.Store(true)
		till(3*time.Minute + 10*time.Millisecond)
		for byHand, claim := range map[bool]func(context.Context) (*Claim, error){false: r.Claim, true: r.ClaimNow} {
			c, err := claim(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if err := c.Call(); errors.Is(err, core.ErrDone) != (i > 0 && !byHand) {
					t.Errorf("by hand: %v: Call %d: %v", byHand, i, err)
				}
			}
			if err := c.End(); err != nil {
				t.Error(err)
			}
		}
		if n := w.count(EventRun); n != 5 {
			t.Errorf("%d runs", n)
		}
	})
}

// A replica that is cut off in a run ends its context before another one starts anything.
func TestLeaseLostInARun(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		var ended time.Time
		all := w.replicas(2, plan{job: []JobOption{AtLeastOnce(2)}, work: onlyFirst(at(3*time.Minute), func(ctx context.Context) error {
			<-ctx.Done()
			if ended = time.Now(); !errors.Is(context.Cause(ctx), core.ErrLost) {
				t.Errorf("the run's context ended with %v", context.Cause(ctx))
			}
			return ctx.Err()
		})})
		till(3*time.Minute + 20*time.Second)
		for _, r := range all {
			if r.running.Load() > 0 {
				r.locks.Link.Cut()
				defer r.locks.Link.Mend()
			}
		}
		till(3*time.Minute + 50*time.Second)
		w.want(at(2*time.Minute), at(3*time.Minute), at(3*time.Minute))
		if runs := w.ran(); len(runs) == 3 && (ended.IsZero() || runs[2].start.Before(ended) || runs[2].replica == runs[1].replica) {
			t.Errorf("the context ended at %v, and then %+v", ended, runs[2])
		}
		if n := w.count(EventLost); n != 1 {
			t.Errorf("%d events of a lost run", n)
		}
	})
}

// A tight loop of calls runs nothing twice.
func TestTightLoop(t *testing.T) {
	bubble(t, 115*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{})
		ctx, stop := context.WithCancel(t.Context())
		for range 3 {
			r.calls.Go(func() {
				for ctx.Err() == nil {
					r.call(ctx)
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		till(2*time.Minute + 5*time.Second)
		stop()
		w.want(ticks(at(time.Minute), time.Minute, 2)...)
	})
}

// A schedule that names other instants than it did when it was added costs no loop.
func TestScheduleThatChanges(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		var asked atomic.Int32
		r := w.replica("a", plan{schedule: scheduleFunc(func(after time.Time) time.Time {
			if asked.Add(1) > 1000 {
				return after
			}
			return Every(time.Minute).Next(after)
		})})
		till(20 * time.Minute)
		if n := asked.Load(); n > 7000 {
			t.Errorf("asked %d times", n)
		}
		r.Remove()
	})
}
