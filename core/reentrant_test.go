package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests Do and TryDo under a lease that the caller already has.

// again runs fn with Do or TryDo, with Reentrant(true).
type again = func(l *Locker, ctx context.Context, fn func(context.Context) error) error

func eachReentrant(t *testing.T, f func(t *testing.T, w *world, again again)) {
	bubbles(t, 3, map[string]func(*Locker, context.Context, string, func(context.Context) error, ...CallOption) error{
		"Do": (*Locker).Do, "TryDo": (*Locker).TryDo,
	}, func(t *testing.T, w *world, run func(*Locker, context.Context, string, func(context.Context) error, ...CallOption) error) {
		f(t, w, func(l *Locker, ctx context.Context, fn func(context.Context) error) error {
			return run(l, ctx, "k", fn, Reentrant(true), Name("inner"), TTL(20*time.Second))
		})
	})
}

// Do and TryDo run fn under the lease of the caller, however the caller has acquired it. They send no request, and
// leave the key to the caller.
func TestReentrant(t *testing.T) {
	eachReentrant(t, func(t *testing.T, w *world, again again) {
		o := &recording{}
		p, other := w.process(WithObserver(o.observer()), WithMaxTTL(time.Minute)), w.process(WithMaxTTL(time.Minute))
		under := func(ctx context.Context) error {
			w.wantRunsUnder(ctx, p, o, again)
			_, err := other.TryAcquire(t.Context(), "k")
			wantErr(t, err, ErrHeld)
			return nil
		}

		for name, run := range map[string]func() error{
			"Do":       func() error { return p.Do(t.Context(), "k", under) },
			"Once":     func() error { return p.Once(t.Context(), "k", under, Retention(time.Millisecond)) },
			"detached": func() error { return p.Do(t.Context(), "k", under, Detached(true)) },
			"an inner run": func() error {
				return p.Do(t.Context(), "k", func(ctx context.Context) error { return again(p.Locker, ctx, under) })
			},
			"Acquire": func() error {
				lease := w.acquire(p, "k")
				defer w.release(lease)
				return under(lease.Context())
			},
		} {
			if err := run(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(time.Second)
			w.release(w.acquire(other, "k"))
		}
	})
}

// wantRunsUnder runs functions with Lockers of one process and contexts derived from ctx. It checks that all run under
// the lease of ctx, that they send no request, and that they do not end the lease. One of them panics.
func (w *world) wantRunsUnder(ctx context.Context, p *process, o *recording, again again) {
	w.t.Helper()
	lease, _ := FromContext(ctx)
	synctest.Wait()
	before, watched := w.requests(), len(o.ops)
	runs := 0
	fn := func(ctx context.Context) error {
		runs++
		if got, _ := FromContext(ctx); got != lease {
			w.t.Errorf("runs under %v", got)
		}
		if got, held := p.Holding(ctx, "k"); got != lease || !held {
			w.t.Errorf("holds %v", got)
		}
		if got, held := p.Holding(ctx, "other"); held {
			w.t.Errorf("holds %v of another key", got)
		}
		return ctx.Err()
	}

	type name struct{}
	for _, l := range []*Locker{p.Locker, must(p.With(Name("other")))} {
		for _, ctx := range []context.Context{ctx, context.WithValue(ctx, name{}, 1), context.WithoutCancel(ctx)} {
			if err := again(l, ctx, fn); err != nil {
				w.t.Error(err)
			}
		}
	}

	recovered(func() error {
		return again(p.Locker, ctx, func(context.Context) error { panic("fn") })
	})
	synctest.Wait()

	if runs != 6 || w.requests() != before || len(o.ops) != watched {
		w.t.Errorf("%d runs, %d requests, %d operations", runs, w.requests()-before, len(o.ops)-watched)
	}
	wantValid(w.t, lease)
}

// The lease of the caller is also found through leases on other keys. From an inner run, these leases are found, too.
func TestReentrantThroughAnotherKey(t *testing.T) {
	eachReentrant(t, func(t *testing.T, w *world, again again) {
		p := w.process(WithMaxTTL(time.Minute))
		type name struct{}
		runs := 0
		k := w.acquire(p, "k")
		err := p.Do(k.Context(), "l", func(ctx context.Context) error {
			l, _ := FromContext(ctx)
			return again(p.Locker, context.WithValue(ctx, name{}, "value"), func(ctx context.Context) error {
				if got, _ := FromContext(ctx); got != k || ctx.Value(name{}) != "value" {
					t.Errorf("runs under %q, with %v", got.Key(), ctx.Value(name{}))
				}
				wantErr(t, p.TryDo(ctx, "l", w.never), errNotReentrant)
				return p.Do(ctx, "l", func(ctx context.Context) error {
					if got, _ := FromContext(ctx); got != l {
						t.Errorf("runs under %q", got.Key())
					}
					runs++
					return nil
				}, Reentrant(true))
			})
		})
		if err != nil || runs != 1 {
			t.Errorf("%d runs, error %v", runs, err)
		}
		wantValid(t, k)
		w.release(k)
	})
}

// The context of the run ends with the caller's context. It also ends with the lease, even if the caller's context does
// not. The error tells which of them has ended.
func TestEndOfAReentrantRun(t *testing.T) {
	errBoom := errors.New("boom")
	vanishes := func(p *process, _ context.CancelFunc) { p.cut() }
	for name, c := range map[string]reentrantEnd{
		"lost": {ends: vanishes, err: context.Context.Err, want: []error{ErrLost}, notWant: context.Canceled},
		"lost, of a cut context": {cut: true, ends: vanishes, err: context.Context.Err,
			want: []error{ErrLost}, notWant: context.Canceled},
		"lost, with another error": {ends: vanishes, err: func(context.Context) error { return errBoom },
			want: []error{ErrLost, errBoom}, notWant: context.Canceled},
		"lost, without an error": {cut: true, ends: vanishes, err: func(context.Context) error { return nil },
			want: []error{ErrLost}, notWant: context.Canceled},
		"lost in a pause": {cut: true, paused: true, ends: func(p *process, _ context.CancelFunc) {
			p.cut()
			p.stopTimers()
			time.Sleep(time.Minute)
		}, err: context.Context.Err, want: []error{ErrLost}, notWant: context.Canceled},
		"cancelled": {ends: func(_ *process, cancel context.CancelFunc) { cancel() }, err: context.Context.Err,
			want: []error{context.Canceled}, notWant: ErrLost, released: true},
		"cancelled, and lost": {ends: func(p *process, cancel context.CancelFunc) {
			cancel()
			p.cut()
			time.Sleep(time.Minute)
		}, err: context.Context.Err, want: []error{context.Canceled, ErrLost}},
		"its deadline": {ends: func(*process, context.CancelFunc) { time.Sleep(5 * time.Minute) }, err: context.Context.Err,
			want: []error{context.DeadlineExceeded}, notWant: ErrLost, released: true},
		"fn's error": {ends: func(_ *process, cancel context.CancelFunc) { cancel() }, err: func(context.Context) error { return errBoom },
			want: []error{errBoom}, notWant: ErrLost, released: true},
	} {
		t.Run(name, func(t *testing.T) {
			eachReentrant(t, c.run)
		})
	}
}

// A reentrantEnd has a way in which a run under the lease of its caller ends, and the expected error of Do.
type reentrantEnd struct {
	cut      bool // the context that it is called with does not end with the lease
	ends     func(p *process, cancel context.CancelFunc)
	err      func(ctx context.Context) error
	want     []error
	notWant  error
	released bool // the lease is still held after the run, so its release succeeds
	paused   bool // the timers of the process are late
}

func (c reentrantEnd) run(t *testing.T, w *world, again again) {
	p := w.process(WithMaxTTL(time.Minute))
	lease := w.holds(p, "k")

	ctx, cancel := context.WithTimeout(lease.Context(), 5*time.Minute)
	defer cancel()
	if c.cut {
		ctx = context.WithoutCancel(lease.Context())
	}

	err := again(p.Locker, ctx, func(ctx context.Context) error {
		c.ends(p, cancel)
		if c.paused { // Done is not closed in time, but Err checks the clock
			wantErr(t, ctx.Err(), context.Canceled)
		}
		testutil.Receive(t, ctx.Done())
		return c.err(ctx)
	})

	for _, want := range c.want {
		wantErr(t, err, want)
	}
	if c.notWant != nil && errors.Is(err, c.notWant) {
		t.Errorf("error is %v", err)
	}

	p.mend()
	if err := lease.Release(t.Context()); c.released != (err == nil) {
		t.Errorf("the outermost's release: %v", err)
	}
}

// Do and TryDo do not run under a lease that is over, with a context that has ended, under a lease of another process,
// or under a lease on another key.
func TestReentrantOnlyUnderALeaseThatIsHeld(t *testing.T) {
	eachReentrant(t, func(t *testing.T, w *world, again again) {
		p, other := w.process(WithMaxTTL(time.Minute)), w.process(WithMaxTTL(time.Minute))
		for name, end := range map[string]func(*Lease){
			"released": w.release,
			"lost": func(lease *Lease) {
				lease.declareLost(LossTaken)
				time.Sleep(11 * time.Second)
			},
		} {
			lease := w.await(p, "k")
			end(lease)
			err := again(p.Locker, lease.Context(), w.never)
			wantErr(t, err, context.Canceled)
			if errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) {
				t.Errorf("two errors at once: %v", err)
			}
			err = again(p.Locker, context.WithoutCancel(lease.Context()), func(ctx context.Context) error {
				got, _ := FromContext(ctx)
				wantLaterToken(t, got, lease)
				wantValid(t, got)
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}

		lease := w.await(p, "k")
		ctx, cancel := context.WithCancel(lease.Context())
		cancel()
		wantErr(t, again(p.Locker, ctx, w.never), context.Canceled)
		wantErr(t, other.TryDo(lease.Context(), "k", w.never, Reentrant(true)), ErrHeld)
		w.release(lease)

		lease = w.acquire(p, "l")
		wantErr(t, again(p.Locker, lease.Context(), func(ctx context.Context) error {
			if got, _ := FromContext(ctx); got == lease {
				t.Error("runs under the lease of another key")
			}
			return coretest.ErrRefused
		}), coretest.ErrRefused)
		w.release(lease)
	})
}

// Only Do and TryDo run under the caller's lease, and only with Reentrant. Without it, the error names the option.
func TestWhatIsNotReentrant(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(Reentrant(true))
		lease := w.acquire(p, "k")
		ctx := lease.Context()
		for name, err := range map[string]error{
			"Acquire":    second(p.Acquire(ctx, "k", Reentrant(true))),
			"TryAcquire": second(p.TryAcquire(ctx, "k")),
			"Once":       p.Once(ctx, "k", w.never, Reentrant(true)),
			"Do":         p.Do(ctx, "k", w.never, Reentrant(false)),
			"TryDo":      p.TryDo(ctx, "k", w.never, Reentrant(false)),
		} {
			wantErr(t, err, ErrHeld)
			if op, ok := errors.AsType[*OpError](err); !ok || op.Key != "k" || op.Op != OpAcquire || !strings.Contains(err.Error(), "core.Reentrant") {
				t.Errorf("%s: %v", name, err)
			}
		}

		if err := p.Do(ctx, "k", func(context.Context) error { return nil }); err != nil {
			t.Errorf("as New has it: %v", err)
		}
		if err := p.Do(ctx, "k", w.never, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("an option is nil: %v", err)
		}
		wantErr(t, p.Do(ctx, "", w.never), ErrInvalid)
		wantErr(t, w.process().TryDo(ctx, "k", w.never, Reentrant(true)), ErrHeld) // another process does not hold it
		w.release(lease)
	})
}

func second[T any](_ T, err error) error { return err }
