package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

type leaseUntil time.Time

func (l leaseUntil) ValidUntil() time.Time { return time.Time(l) }

// A lease ends when its loss is known, or when it expired if that was earlier. So the next holder does not seem to
// overlap with it.
func TestLossIsToldInTime(t *testing.T) {
	for name, c := range map[string]struct{ left, want time.Duration }{
		"it ran out":     {left: -time.Minute, want: -time.Minute},
		"taken or freed": {left: time.Minute, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				r, now := newReporter("a", &out), time.Now()
				over := r.holds("k", 1, leaseUntil(now.Add(c.left)))
				out.Reset()
				over(&core.OpError{Reason: core.LossClosed})
				var e Event
				if err := json.Unmarshal([]byte(out.String()), &e); err != nil {
					t.Fatal(err)
				}
				if e.Kind != isLost || e.At != millis(now.Add(c.want)) {
					t.Errorf("%+v, want it lost at %v", e, c.want)
				}
			})
		})
	}
}

// A replica that has no time left to shut down skips the remaining steps, so that it does not release its leases.
func TestStopOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &replica{stops: []func(context.Context) error{
			func(context.Context) error {
				t.Error("it goes on")
				return nil
			},
			func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
