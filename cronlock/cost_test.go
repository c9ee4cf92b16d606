package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// requests are what all nodes were asked: scripts, and looks, each of which reads the time once.
func (w *world) requests() (n int) {
	for _, node := range w.nodes {
		n += node.Calls()["EVALSHA"] + node.Calls()["TIME"]
	}
	return n
}

// A job of every minute on three replicas and three nodes: what all nodes are asked for a tick.
func TestRequestsPerTick(t *testing.T) {
	withAndWithoutHosts(t, 90*time.Second, func(t *testing.T, w *world, host bool) {
		w.replicas(3, plan{host: host})
		if err := w.first.Close(t.Context()); err != nil { // it looks after its nodes, too
			t.Fatal(err)
		}
		till(5*time.Minute + 30*time.Second)
		before := w.requests()
		const n = 10
		time.Sleep(n * time.Minute)
		w.want(ticks(at(time.Minute), time.Minute, 15)...)
		each := (w.requests() - before) / n
		if each > 180 {
			t.Errorf("%d requests for each tick", each)
		}
		t.Logf("%d requests for each tick", each)
	})
}

// One slow job never delays another's look.
func TestManyJobs(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		const jobs = 20
		due := At(at(5*time.Minute), at(10*time.Minute))
		for _, r := range w.replicas(3, plan{schedule: At(at(time.Hour))}) {
			slow := replica{w: w, name: r.name, plan: plan{work: hold(8 * time.Minute)}}
			_, err := r.service.Add("slow", due, slow.work)
			for k := range jobs {
				_, added := r.service.Add(fmt.Sprint("job", k), due, r.work)
				err = errors.Join(err, added)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		till(10*time.Minute + 30*time.Second)
		on := map[string]int{}
		for _, run := range w.ran() {
			if on[run.Job]++; run.start.Sub(run.Tick) > 2*time.Second {
				t.Errorf("%s started %v late", run.Job, run.start.Sub(run.Tick))
			}
		}
		for k := range jobs {
			if n := on[fmt.Sprint("job", k)]; n != 2 {
				t.Errorf("job %d ran %d times at two ticks", k, n)
			}
		}
		if on["slow"] != 1 {
			t.Errorf("the slow job ran %d times", on["slow"])
		}
	})
}

// Of many jobs a few ask the nodes at a time, and a run that goes on, or one by hand, is none of them.
func TestClaimsTakeTurns(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{host: true, work: func(context.Context) error { return nil }})
		r.asleep.Store(true)
		till(70 * time.Second)
		for range atOnce {
			r.service.turns <- struct{}{}
		}
		if err := r.RunNow(t.Context()); err != nil {
			t.Errorf("RunNow: %v", err)
		}
		till(2*time.Minute + time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := r.RunDue(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RunDue without a turn: %v", err)
		}
		<-r.service.turns
		var taken atomic.Int64 // while the nodes are asked, of which two are enough
		for _, n := range w.nodes {
			n.OnCall(func(int, []string) string { taken.Store(max(taken.Load(), int64(len(r.service.turns)))); return "" })
		}
		c, err := r.Claim(t.Context())
		for _, n := range w.nodes {
			n.OnCall(nil)
		}
		if err != nil || taken.Load() != atOnce || len(r.service.turns) != atOnce-1 {
			t.Errorf("%v; %d turns were taken, and now %d", err, taken.Load(), len(r.service.turns))
		}
		if err := errors.Join(c.Call(), c.End()); err != nil {
			t.Error(err)
		}
		for range atOnce - 1 {
			<-r.service.turns
		}
		w.want(midnight, at(time.Minute), time.Time{}, at(2*time.Minute))
	})
}
