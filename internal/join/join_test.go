package join

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// A joint context ends when one of its contexts ends, and has the cause of that context.
func TestContexts(t *testing.T) {
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
			joint, stop := Contexts(first, second)
			defer stop()
			if joint.Value(key{}) != "value" {
				t.Error("it lacks a value of the first")
			}

			done := joint.Done()
			if c.end(endFirst, endSecond, stop); c.cause != nil {
				testutil.Receive(t, done) // without a call of Err
			}

			if err := joint.Err(); (err != nil) != (c.cause != nil) || !errors.Is(context.Cause(joint), c.cause) {
				t.Errorf("%v, for %v; want %v", err, context.Cause(joint), c.cause)
			}
			select {
			case <-joint.Done():
				if c.cause == nil {
					t.Error("Done says that it has ended")
				}
			default:
				if c.cause != nil {
					t.Error("Done does not say so")
				}
			}

			endFirst(errors.New("later"))
			if c.cause != nil && !errors.Is(context.Cause(joint), c.cause) {
				t.Errorf("the cause became %v", context.Cause(joint))
			}
		})
	}
}

// A joint context has the earliest deadline, and ends at it like any other context.
func TestDeadline(t *testing.T) {
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
			joint, stop := Contexts(of(early, late))
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

// A lateContext has ended before its Done channel is closed, as after a pause of the process. Its method Err knows it.
type lateContext struct {
	context.Context
	over *bool
}

func (c lateContext) Err() error {
	if *c.over {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// The method Err of a joint context knows when one of its contexts has ended, even before a Done channel is closed.
func TestContextsAreAsked(t *testing.T) {
	var over bool
	joint, stop := Contexts(t.Context(), lateContext{t.Context(), &over})
	defer stop()
	if err := joint.Err(); err != nil {
		t.Fatal(err)
	}
	if over = true; joint.Err() == nil {
		t.Error("it has ended, and does not say so")
	}
}
