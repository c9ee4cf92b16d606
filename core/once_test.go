package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

func TestOnceRunsOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var tokens []uint64
		told := make(chan error, 9)
		for range 3 {
			p := w.process()
			for range 3 {
				go func() {
					told <- p.Once(t.Context(), "k", func(ctx context.Context) error {
						time.Sleep(5 * time.Second)
						lease, _ := FromContext(ctx)
						mu.Lock()
						defer mu.Unlock()
						tokens = append(tokens, lease.FencingToken())
						return ctx.Err()
					})
				}()
			}
		}

		var others []error // a waiter may return before the call that ran fn
		for range 9 {
			if err := testutil.Receive(t, told); err != nil {
				others = append(others, err)
			}
		}
		if len(tokens) != 1 || len(others) != 8 {
			t.Fatalf("ran %d times, and %d were told otherwise", len(tokens), len(others))
		}
		for _, err := range others {
			wantDone(t, err, Record{tokens[0], nil})
		}
	})
}

// If fn fails, Once records nothing, and the next call runs its function at once.
func TestOnceRecordsNoFailure(t *testing.T) {
	failure := errors.New("failure")
	type failing struct {
		fn     func(context.Context) error
		err    error
		panics any
	}
	bubbles(t, 3, map[string]failing{
		"error": {func(context.Context) error { return failure }, failure, nil},
		"panic": {func(context.Context) error { panic(failure) }, nil, failure},
	}, func(t *testing.T, w *world, c failing) {
		p, other := w.process(), w.process()
		panicked, err := recovered(func() error { return p.Once(t.Context(), "k", c.fn) })
		if err != c.err || panicked != c.panics {
			t.Errorf("error %v, panic %v", err, panicked)
		}

		synctest.Wait()
		for i := range w.nodes {
			if w.recordOn(p, i, "k") != "" || w.owner(p, i, "k") != "" {
				t.Errorf("node %d: owner %q, record %q", i, w.owner(p, i, "k"), w.recordOn(p, i, "k"))
			}
		}
		p.wantNothingLeft(t)

		ran := false
		err = other.Once(t.Context(), "k", func(context.Context) error { ran = true; return nil })
		if err != nil || !ran {
			t.Errorf("the next one: ran %v, error %v", ran, err)
		}
	})
}

// recovered calls f, and returns the value of its panic, or its error.
func recovered(f func() error) (panicked any, err error) {
	defer func() { panicked = recover() }()
	return nil, f()
}

// never is a function that must not run, because the key is done or held.
func (w *world) never(context.Context) error {
	w.t.Error("runs although the key is done, or held")
	return nil
}

// If fn completes the key itself, Once returns the error of fn, and the result that fn recorded stays.
func TestOnceWithResult(t *testing.T) {
	for _, want := range []error{nil, errors.New("failure")} {
		bubbleNamed(t, fmt.Sprint(want), 3, func(t *testing.T, w *world) {
			p := w.process()
			var record Record
			err := p.Once(t.Context(), "k", func(ctx context.Context) error {
				lease, _ := FromContext(ctx)
				record = w.complete(lease, "result")
				return want
			})
			if err != want {
				t.Errorf("error is %v, want %v", err, want)
			}
			wantDone(t, p.Once(t.Context(), "k", w.never), record)
			w.wantDoneEverywhere("k", record)
		})
	}
}

// If fn has succeeded, Once goes on recording that until the nodes are back, even if the caller's context has ended.
func TestOnceRecordsWhenNodesReturn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		ctx, cancel := context.WithCancel(t.Context())
		var token uint64
		err := p.Once(ctx, "k", func(ctx context.Context) error {
			lease, _ := FromContext(ctx)
			token = lease.FencingToken()
			p.reaches(0)
			time.AfterFunc(9100*time.Millisecond, func() { p.reaches(0, 1, 2) })
			cancel()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.wantDoneEverywhere("k", Record{token, nil})
	})
}

// If fn began to record a result, and no quorum confirmed it, OnceResult records and returns that result, whatever fn
// returns.
func TestOnceGoesOnWithTheResultOfFn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		var token uint64
		got, err := p.OnceResult(t.Context(), "k", func(ctx context.Context) ([]byte, error) {
			lease, _ := FromContext(ctx)
			token = lease.FencingToken()
			p.records(0)
			wantErr(t, lease.Complete(ctx, []byte("first")), ErrUnavailable)
			p.reaches(0, 1, 2)
			return []byte("second"), nil
		})
		if string(got) != "first" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		w.wantDoneEverywhere("k", Record{token, []byte("first")})
	})
}

func TestOnceCannotRecord(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		var start time.Time
		err := p.Once(t.Context(), "k", func(context.Context) error {
			for _, k := range p.links[1:] {
				k.Set(coretest.Fate{Refuse: true})
			}
			start = time.Now()
			return nil
		})
		wantErr(t, err, ErrUnavailable)
		if d := time.Since(start); d < p.p.ttl || d > p.p.ttl+2*p.p.nodeTimeout {
			t.Errorf("gave up after %v, the TTL is %v", d, p.p.ttl)
		}
		p.reaches(0, 1)
		wantErr(t, p.Once(t.Context(), "k", w.never), ErrDone) // the next call completes the record
	})
}

// If another process took over and completed the key while fn ran, Once returns ErrLost, and the record stays.
func TestOnceLosesTheKey(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		var record Record
		err := p.Once(t.Context(), "k", func(context.Context) error {
			p.reaches()
			time.Sleep(11 * time.Second)
			record = w.complete(w.acquire(other, "k"), "other")
			p.reaches(0, 1, 2)
			return nil
		})
		wantErr(t, err, ErrLost)
		w.wantDoneEverywhere("k", record)
	})
}

// Complete is repeated until its outcome is known, its context ends, or, without a deadline, a TTL has passed.
func TestCompletionIsRepeated(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		ended, timedOut := over(), func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			t.Cleanup(cancel)
			return ctx
		}

		for _, c := range []struct {
			name string
			ctx  func() context.Context
			took time.Duration
		}{
			{"one that has ended", func() context.Context { return ended }, 0},
			{"no deadline", t.Context, p.p.ttl},
			{"a deadline", timedOut, 20 * time.Second},
			{"one that is cancelled", func() context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Second, cancel)
				return ctx
			}, 3 * time.Second},
		} {
			lease := w.acquire(p, "k")
			p.refused()
			began := time.Now()
			wantOnly(t, lease.Complete(c.ctx(), nil), ErrUnavailable)
			wantBetween(t, c.name, time.Since(began), c.took, c.took+p.p.nodeTimeout)
			p.mend()
			time.Sleep(time.Minute) // the next case begins with a free key
		}

		lease := w.acquire(p, "k")
		p.refused()
		time.AfterFunc(3*time.Second, p.mend)
		if err := lease.Complete(t.Context(), []byte("r")); err != nil {
			t.Error(err)
		}
		_, err := p.TryAcquire(t.Context(), "k")
		wantDone(t, err, Record{Token: lease.FencingToken(), Result: []byte("r")})
	})
}

// Complete stops repeating when the record cannot count any more, and when the Locker is closed. Close need not wait
// for it. The outcome is then still unknown.
func TestCompletionIsNotRepeatedForEver(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.refused()
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		began := time.Now()
		wantOnly(t, lease.Complete(ctx, nil), ErrUnavailable)
		counts := wire.IdleFence * 9 / 10 // from the end of trust, by a clock that may run slow
		wantBetween(t, "until it counts no more", time.Since(began), counts, counts+p.p.ttl)

		p = w.process()
		lease = w.acquire(p, "another")
		p.refused()
		began = time.Now()
		time.AfterFunc(3*time.Second, func() { p.Close(t.Context()) })
		wantOnly(t, lease.Complete(ctx, nil), ErrUnavailable)
		wantBetween(t, "until the Locker ended", time.Since(began), 3*time.Second, 4*time.Second)
	})
}
