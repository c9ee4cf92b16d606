package core

import (
	"context"
	"errors"
	"testing"
	"time"
)

var none context.Context

// Nil arguments, nil and zero Lockers, and nil and zero Leases lead to errors that match ErrInvalid, and to no panic.
func TestNothing(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		run := func(context.Context) error { t.Error("run"); return nil }
		result := func(context.Context) ([]byte, error) { return nil, run(nil) }
		calls := func(l *Locker, ctx context.Context, run func(context.Context) error, result func(context.Context) ([]byte, error)) map[string]error {
			_, acquired := l.Acquire(ctx, "k")
			_, tried := l.TryAcquire(ctx, "k")
			_, resulted := l.OnceResult(ctx, "k", result)
			return map[string]error{"Acquire": acquired, "TryAcquire": tried, "OnceResult": resulted, "Do": l.Do(ctx, "k", run),
				"TryDo": l.TryDo(ctx, "k", run), "Once": l.Once(ctx, "k", run)}
		}
		wantInvalid := func(of string, errs map[string]error) {
			for call, err := range errs {
				if !errors.Is(err, ErrInvalid) || ClassOf(err) != ClassInvalid {
					t.Errorf("%s: %s: %v", of, call, err)
				}
			}
		}

		p := w.process()
		for of, l := range map[string]*Locker{"nil Locker": nil, "zero Locker": {}} {
			wantInvalid(of, calls(l, t.Context(), run, result))
			_, err := l.With()
			_, inspected := l.Inspect(t.Context(), "k")
			wantInvalid(of, map[string]error{"With": err, "Inspect": inspected, "Close": l.Close(t.Context()), "Provision": l.Provision(t.Context())})
			if _, known := l.ClockOffset(); known || l.KeyPrefix() != "" || l.Logger() == nil {
				t.Errorf("%s knows the time, or has a prefix", of)
			}
			l.Event(t.Context(), Event{})
		}

		wantInvalid("nil context", calls(p.Locker, none, run, result))
		_, inspected := p.Inspect(none, "k")
		wantInvalid("nil context", map[string]error{"Inspect": inspected, "Close": p.Close(none), "Provision": p.Provision(none), "Ready": p.Ready(none)})

		nothing := calls(p.Locker, t.Context(), nil, nil)
		delete(nothing, "Acquire") // these two take no function
		delete(nothing, "TryAcquire")
		wantInvalid("nil function", nothing)

		for of, lease := range map[string]*Lease{"nil Lease": nil, "zero Lease": {}} {
			wantInvalid(of, map[string]error{"Release": lease.Release(t.Context()), "Complete": lease.Complete(t.Context(), nil),
				"Extend": lease.Extend(time.Second), "Context": context.Cause(lease.Context())})
			if err := lease.Lost(); err != nil {
				t.Errorf("%s was lost: %v", of, err)
			}
		}
	})
}

func TestNilContextLeavesTheLease(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease, err := p.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{lease.Release(none), lease.Complete(none, nil)} {
			wantErr(t, err, ErrInvalid)
		}
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Error(err)
		}
		w.release(lease)
	})
}

// OnceResult returns the result of the recorded run to all callers.
func TestOnceResult(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		runs := 0
		fn := func(result string, err error) func(context.Context) ([]byte, error) {
			return func(context.Context) ([]byte, error) {
				runs++
				return []byte(result), err
			}
		}

		failed := errors.New("failed")
		got, err := a.OnceResult(t.Context(), "k", fn("half", failed))
		if string(got) != "half" || !errors.Is(err, failed) {
			t.Errorf("of a failure: %q, %v", got, err)
		}

		for i, p := range []*process{a, b, a} {
			got, err := p.OnceResult(t.Context(), "k", fn("r", nil))
			if string(got) != "r" || err != nil || runs != 2 {
				t.Errorf("%d: %q, %v, after %d runs", i, got, err, runs)
			}
		}
		wantErr(t, b.Once(t.Context(), "k", func(context.Context) error { return nil }), ErrDone)
	})
}

// OnceResult returns a result that is too large to record. If fn records another result than it returns, OnceResult
// returns the recorded one.
func TestOnceResultThatIsNotTheRecord(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		large := make([]byte, maxResult+1)
		got, err := a.OnceResult(t.Context(), "large", func(context.Context) ([]byte, error) { return large, nil })
		if len(got) != len(large) || !errors.Is(err, ErrInvalid) {
			t.Errorf("too large: %d bytes, %v", len(got), err)
		}
		w.release(w.acquire(b, "large"))

		own := func(ctx context.Context) ([]byte, error) {
			lease, _ := FromContext(ctx)
			return []byte("returned"), lease.Complete(ctx, []byte("recorded"))
		}
		for range 2 {
			if got, err := a.OnceResult(t.Context(), "own", own); string(got) != "recorded" || err != nil {
				t.Errorf("recorded by the function itself: %q, %v", got, err)
			}
		}

		// If fn returns ErrDone of another key, that key's result is not returned.
		must(a.OnceResult(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("r"), nil }))
		got, err = a.OnceResult(t.Context(), "other", func(ctx context.Context) ([]byte, error) {
			return nil, a.Once(ctx, "k", func(context.Context) error { return nil })
		})
		if got != nil {
			t.Errorf("the result of another key: %q", got)
		}
		wantErr(t, err, ErrDone)
	})
}
