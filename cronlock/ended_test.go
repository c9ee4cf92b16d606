package cronlock

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// A function is not called with a context that has ended: whenever the job is removed while its run is about to start, also
// while the attempt is being recorded.
func TestNotCalledWhenStopped(t *testing.T) {
	t.Parallel()
	const most = 2 * time.Second
	called := 0
	for after := time.Duration(0); after < most; after += 50 * time.Millisecond {
		serialBubble(t, 3, func(t *testing.T, w *world) {
			for _, n := range w.nodes {
				n.Slow(200 * time.Millisecond)
			}
			r := w.replica("a")
			j := r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
				if err := ctx.Err(); err != nil {
					t.Errorf("removed %v after the tick: called with a context that has ended: %v", after, err)
				}
				called++
				return nil
			})
			r.sched.Start()
			now := time.Now()
			time.Sleep(now.Truncate(time.Minute).Add(time.Minute + after).Sub(now))
			if err := j.Remove(); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
		})
	}
	if called == 0 {
		t.Error("no removal came after the start: the nodes are too slow")
	}
}
