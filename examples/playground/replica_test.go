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
				over := r.holds("k", Event{Key: "k", Token: 1}, leaseUntil(now.Add(c.left)))
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

// A permit is told of by its key and slot. Its renewals, of which the replica hears by the slot's key on the nodes, are
// told of in the same way.
func TestPermitIsToldBySlot(t *testing.T) {
	var out strings.Builder
	r := newReporter("a", &out)
	lock := core.Key("slot", api, "1")
	over := r.holds(lock, Event{Key: api, Slot: new(1), Token: 7}, leaseUntil(time.Now().Add(time.Minute)))
	r.renewed(lock, 7)
	r.renewed(api, 7) // slot 0, which the replica does not hold
	over(nil)

	var kinds []string
	for lines := json.NewDecoder(strings.NewReader(out.String())); lines.More(); {
		var e Event
		if err := lines.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.lock() != "payments-api slot 1" || e.Token != 7 {
			t.Errorf("%+v", e)
		}
		kinds = append(kinds, e.Kind)
	}
	if got := strings.Join(kinds, " "); got != "grant renew end" {
		t.Errorf("told of %s", got)
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
