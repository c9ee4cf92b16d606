package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// A joint context ends with each of those it is made of, and says why.
func TestJoin(t *testing.T) {
	why := errors.New("why")
	for name, c := range map[string]struct {
		end   func(first, second context.CancelCauseFunc, stop func())
		cause error
	}{
		"the first":  {func(first, _ context.CancelCauseFunc, _ func()) { first(why) }, why},
		"another":    {func(_, second context.CancelCauseFunc, _ func()) { second(why) }, why},
		"neither":    {func(context.CancelCauseFunc, context.CancelCauseFunc, func()) {}, nil},
		"the caller": {func(_, _ context.CancelCauseFunc, stop func()) { stop() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			type key struct{}
			first, endFirst := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
			second, endSecond := context.WithCancelCause(t.Context())
			joint, stop := Join(first, second)
			defer stop()
			if joint.Value(key{}) != "value" {
				t.Error("it lacks a value of the first")
			}
			done := joint.Done()
			if c.end(endFirst, endSecond, stop); c.cause != nil {
				testutil.Receive(t, done) // nobody has looked since
			}
			if err := joint.Err(); (err != nil) != (c.cause != nil) || !errors.Is(context.Cause(joint), c.cause) {
				t.Errorf("%v, for %v; want %v", err, context.Cause(joint), c.cause)
			}
			if isClosed(joint.Done()) != (c.cause != nil) {
				t.Error("Done does not say so")
			}
			endFirst(errors.New("later"))
			if c.cause != nil && !errors.Is(context.Cause(joint), c.cause) {
				t.Errorf("the cause became %v", context.Cause(joint))
			}
		})
	}
}

// A joint context has the earliest deadline, and ends at it as any other does.
func TestDeadlineOfJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, of := range map[string]func(early, late context.Context) (context.Context, context.Context){
			"of the first":  func(early, _ context.Context) (context.Context, context.Context) { return early, t.Context() },
			"of another":    func(early, _ context.Context) (context.Context, context.Context) { return t.Context(), early },
			"the first's":   func(early, late context.Context) (context.Context, context.Context) { return early, late },
			"the other's":   func(early, late context.Context) (context.Context, context.Context) { return late, early },
			"there is none": func(_, _ context.Context) (context.Context, context.Context) { return t.Context(), t.Context() },
		} {
			want := time.Now().Add(time.Hour)
			early, cancel := context.WithDeadline(t.Context(), want)
			defer cancel()
			late, cancel := context.WithDeadline(t.Context(), want.Add(time.Hour))
			defer cancel()
			joint, stop := Join(of(early, late))
			defer stop()
			child, cancel := context.WithCancel(joint)
			defer cancel()
			at, limited := joint.Deadline()
			if name == "there is none" {
				if limited {
					t.Errorf("%s: %v", name, at)
				}
				continue
			}
			if !limited || !at.Equal(want) {
				t.Errorf("%s: %v, %v", name, at, limited)
			}
			<-child.Done()
			if now := time.Now(); !now.Equal(want) || joint.Err() != context.DeadlineExceeded || child.Err() != context.DeadlineExceeded {
				t.Errorf("%s: ended at %v, not %v, with %v and %v", name, now, want, joint.Err(), child.Err())
			}
		}
	})
}

// Whoever joins a lease that ran out while the process was paused knows at the first look.
func TestJoinedLeaseRunsOutInAPause(t *testing.T) {
	for name, ended := range map[string]func(context.Context) bool{
		"Err":  func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool { return isClosed(ctx.Done()) },
	} {
		for place, join := range map[string]func(lease, other context.Context) (context.Context, func()){
			"first":  func(lease, other context.Context) (context.Context, func()) { return Join(lease, other) },
			"second": func(lease, other context.Context) (context.Context, func()) { return Join(other, lease) },
		} {
			t.Run(name+" "+place, func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) {
					p := w.process()
					lease := w.acquire(p, "k")
					joint, stop := join(lease.Context(), t.Context())
					defer stop()
					p.stopTimers()
					time.Sleep(time.Hour)
					if !ended(joint) {
						t.Error("has not ended")
					}
					wantErr(t, context.Cause(joint), ErrLost)
					wantErr(t, lease.Lost(), ErrLost)
				})
			})
		}
	}
}

// A lease is lost if it ended before its holder ended it.
func TestLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		ctx, cancel := context.WithCancel(t.Context())
		left, err := p.Acquire(ctx, "left")
		if err != nil {
			t.Fatal(err)
		}
		released, lost := w.acquire(p, "released"), w.acquire(p, "lost")
		w.release(released)
		cancel()
		for _, lease := range []*Lease{left, released, lost} {
			if err := lease.Lost(); err != nil {
				t.Errorf("%q: %v", lease.Key(), err)
			}
		}
		for _, n := range w.nodes {
			n.Down()
		}
		time.Sleep(p.p.ttl)
		err = lost.Lost()
		wantErr(t, err, ErrLost)
		wantReason(t, err, LossExpired)
		for _, n := range w.nodes {
			n.Up()
		}
	})
}

// Whoever looks at a lease that has run out while another goroutine is about to say so hears why it ended, from the lease,
// from its context and from one that joins it.
func TestLossIsSeenWithItsCause(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lease := w.acquire(w.process(unrenewed), "k")
		joint, stop := Join(t.Context(), lease.Context())
		defer stop()
		lease.mu.Lock() // as lose leaves it, before it ends the context
		lease.state, lease.reason = leaseLost, LossExpired
		lease.loss = lease.lossOf(OpHold)
		lease.distrust()
		lease.mu.Unlock()
		wantErr(t, lease.Lost(), ErrLost)
		for name, ctx := range map[string]context.Context{"the lease's": lease.Context(), "the joint": joint} {
			if err := ctx.Err(); err != context.Canceled || !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("%s context ended with %v, cause %v", name, err, context.Cause(ctx))
			}
		}
		lease.mu.Lock()
		lease.state = leaseHeld
		lease.mu.Unlock()
		lease.lose(LossExpired)
	})
}
