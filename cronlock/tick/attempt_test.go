package tick

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// An attempt that was recorded counts, although the function was not called in the end: at most once the tick is over, so
// that the job is not taken for free by a replica that would start it again.
func TestStoppedBetweenRecordAndCall(t *testing.T) {
	for name, tt := range map[string]struct {
		policy JobOption
		again  error
		runs   int
	}{
		"at most once":  {AtMostOnce(), core.ErrDone, 0},
		"at least once": {AtLeastOnce(2), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				r, other := w.alone(every(time.Minute), nil, tt.policy), w.alone(every(time.Minute), nil, tt.policy)
				of := Tick{At: untilMinute(time.Second), Exact: true}
				stopAfterRecord(t, r, of)
				err := other.Run(t.Context(), of)
				if !errors.Is(err, tt.again) || err != nil && !strings.Contains(err.Error(), "failed by "+r.service.self) {
					t.Errorf("elsewhere: %v", err)
				}
				if runs := w.ran(); len(runs) != tt.runs || tt.runs > 0 && runs[0].Attempt != 2 {
					t.Errorf("runs %+v", runs)
				}
				untilMinute(time.Second)
				if err := other.RunDue(t.Context()); err != nil {
					t.Errorf("the next tick: %v", err)
				}
			})
		})
	}
}

// stopAfterRecord has a replica claim a tick, and be told to stop while it records the attempt.
func stopAfterRecord(t *testing.T, r *replica, of Tick) {
	t.Helper()
	c, err := r.Claim(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	r.locks.Link.OnRequest(func(redis.Cmder) testutil.Action {
		c.replace()
		return testutil.Action{}
	})
	var refused *Error
	if err := c.Call(); !errors.Is(err, ErrReplaced) || !errors.As(err, &refused) || !errors.Is(c.Err(), ErrReplaced) {
		t.Errorf("Call: %v, Err: %v", err, c.Err())
	}
	r.locks.Link.OnRequest(nil)
	if err := c.End(); err != nil {
		t.Error(err)
	}
}

// One that was stopped before it was recorded has started nothing.
func TestStoppedBeforeTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r, other := w.alone(every(time.Minute), nil), w.alone(every(time.Minute), nil)
		minute := untilMinute(time.Second)
		of := Tick{At: minute, Exact: true}
		ctx, cancel := context.WithCancel(t.Context())
		c, err := r.Claim(ctx, of)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := c.Call(); !errors.Is(err, context.Canceled) || !IsExpected(err) {
			t.Error(err)
		}
		if err := errors.Join(c.End(), other.Run(t.Context(), of)); err != nil {
			t.Error(err)
		}
		w.want(minute)
	})
}
