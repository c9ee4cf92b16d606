package cronlock

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/race"
)

// held is what a replica keeps in memory for its jobs, in numbers.
func (r *replica) held(j *Job) string {
	r.w.t.Helper()
	listed, err := j.Handle().NextRuns(1 << 12)
	if err != nil {
		r.w.t.Error(err)
	}
	past := 0 // gocron lists what it has forgotten to drop before what is next
	for _, tick := range listed {
		if tick.Before(r.clock.Now()) {
			past++
		}
	}
	return fmt.Sprintf("%d of gocron's jobs, at most the ticks of a minute: %t, %d of gocron's ticks past",
		len(r.sched.Jobs()), j.kept() <= 61, past)
}

// A replica that never runs a tick keeps nothing of those it leaves to others, whether it loses them or does not
// lead. Nor do the nodes, once the retention is over.
func TestMemoryOverTicks(t *testing.T) {
	race.Campaign(t)
	for led, ticks := range map[bool]int{false: 100, true: 200} { // TestFollowerKeepsNothing has 1,000
		t.Run(fmt.Sprintf("led=%t", led), func(t *testing.T) {
			serialBubble(t, 1, func(t *testing.T, w *world) { memoryOverTicks(t, w, led, ticks) })
		})
	}
}

func memoryOverTicks(t *testing.T, w *world, led bool, ticks int) {
	first, e := w.remembering(0, led)
	follower, f := w.remembering(1, led)
	time.Sleep(10*time.Second + 500*time.Millisecond)
	synctest.Wait()
	before, goroutines := follower.held(follower.the("job")), runtime.NumGoroutine()
	time.Sleep(time.Duration(ticks) * time.Second)
	synctest.Wait()
	if after := follower.held(follower.the("job")); after != before {
		t.Errorf("after ten ticks: %s; after %d more: %s", before, ticks, after)
	}
	if !strings.Contains(before, "0 of gocron's ticks past") {
		t.Errorf("gocron keeps ticks: %s", before)
	}
	if n := runtime.NumGoroutine(); n > goroutines+5 {
		t.Errorf("%d goroutines, before %d", n, goroutines)
	}
	w.oncePerTick()
	followed := 0
	for _, r := range w.ran() {
		if r.replica == follower.name {
			followed++
		}
	}
	if n := len(w.ran()); n < ticks || followed > 20 {
		t.Errorf("%d runs, %d of them by the replica that was to follow", n, followed)
	}
	// Of each tick there are two, itself and the attempt, for the retention and the hour that core keeps fencing counters.
	if n := len(w.nodes[0].Keys()); n > 2*len(w.ran())+40 {
		t.Errorf("%d keys of %d ticks", n, len(w.ran()))
	}
	first.settle()
	follower.settle()
	for _, end := range []func(){e, f} {
		end()
	}
	time.Sleep(3*time.Hour + 4*time.Minute) // two more for clocks that jump
	for _, key := range w.nodes[0].Keys() {
		if strings.Contains(key, core.Key("cron", "service")+"/") {
			t.Errorf("%s is left", key)
		}
	}
}

// remembering starts one of two replicas, of which the first runs the ticks. end closes its elector.
func (w *world) remembering(i int, led bool) (r *replica, end func()) {
	w.t.Helper()
	locks := w.locks()
	opts := []Option{WithRetention(3 * time.Minute), AtLeastOnce(2), WithClock(skewed{defaults().clock, -time.Duration(i) * 300 * time.Millisecond})}
	end = func() {}
	if led {
		e, err := leader.New(locks, "group")
		if err != nil {
			w.t.Fatal(err)
		}
		end = func() {
			if err := e.Close(w.t.Context()); err != nil {
				w.t.Error(err)
			}
		}
		opts = append(opts, WithElector(e))
		time.Sleep(time.Second)
	}
	r = w.replicaOn(fmt.Sprint(i), locks, opts...)
	r.job(gocron.CronJob(secondly, true), nil)
	r.sched.Start()
	return r, end
}
