package clock

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wobble is the largest difference between a stopwatch and Go's clock. A stopwatch measures suspensions to the
// millisecond.
const wobble = time.Millisecond

func TestStopwatchFollowsTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		watch := New()
		for _, d := range []time.Duration{0, 1, time.Second, time.Hour, 1000 * time.Hour} {
			time.Sleep(d)
			if diff := (watch.Now().Since(0) - time.Since(start)).Abs(); diff > wobble {
				t.Errorf("%v off after %v", diff, time.Since(start))
			}
		}
	})
}

func TestStopwatchRunsForward(t *testing.T) {
	t.Parallel()
	start := time.Now()
	watch := New()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			var last time.Duration
			for range 20_000 {
				before := time.Since(start)
				now := watch.Now().Since(0)
				after := time.Since(start)
				if now < last-wobble {
					t.Errorf("%v after %v", now, last)
					return
				}
				if now < before-wobble || now > after+wobble {
					t.Errorf("%v, by Go's clock it is %v to %v", now, before, after)
					return
				}
				last = max(last, now)
			}
		})
	}
	readers.Wait()
}

// Instants do not wrap around.
func TestInstantsSaturate(t *testing.T) {
	if got := Instant(5).Add(math.MaxInt64); got != Never {
		t.Errorf("the last instant is %d", got)
	}
	if got := Instant(5).Add(-2).Since(1); got != 2 {
		t.Errorf("5 less 2 is %v after 1", got)
	}
}
