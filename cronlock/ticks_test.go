package cronlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// Each tick of a job by the wall clock runs once, whatever the skew between replicas and however short the job.
func TestOncePerTick(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Second / 3, -time.Second / 3} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				for i := range 3 {
					var opts []Option
					if i == 0 {
						opts = append(opts, WithClock(skewed{defaults().clock, skew}))
					}
					r := w.replica(fmt.Sprint(i), opts...)
					r.job(gocron.CronJob(secondly, true), nil)
					r.sched.Start()
				}
				time.Sleep(20*time.Second + 500*time.Millisecond)
				for tick, n := range w.perTick() {
					if n != 1 {
						t.Errorf("tick %v ran %d times", tick, n)
					}
				}
				if n := len(w.ran()); n < 20 || n > 21 {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}
