package recipes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/testutil"
)

// oneNode returns a Locker on one node, for tests that last for days.
func oneNode(t *testing.T) *core.Locker {
	locker, err := core.New(testutil.Clients(testutil.NewNodes(t, 1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locker
}

// A service that starts at noon runs the job of three o'clock at once, and then each day on time. The bubble's clock
// begins at midnight.
func TestAtThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		cron, err := cronlock.New(oneNode(t), "billing")
		if err != nil {
			t.Fatal(err)
		}
		var starts []time.Duration
		began := time.Now()
		if err := AtThree(cron, func(context.Context) error {
			starts = append(starts, time.Since(began).Round(time.Minute))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(16 * time.Hour)
		if err := cron.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if len(starts) != 2 || starts[0] != 0 || starts[1] != 15*time.Hour {
			t.Errorf("it ran after %v", starts)
		}
	})
}

// One caller a day runs the function, even if one day's run was late and the next day's is early.
func TestOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, runs := oneNode(t), 0
		ask := func(want error) {
			t.Helper()
			if err := OnceADay(t.Context(), locker, func(context.Context) error { runs++; return nil }); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		time.Sleep(23 * time.Hour)
		ask(nil)
		ask(core.ErrDone)
		time.Sleep(time.Hour + time.Minute)
		ask(nil)
		time.Sleep(23*time.Hour + 50*time.Minute)
		ask(core.ErrDone)
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}
