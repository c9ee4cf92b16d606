package cronlock

import (
	"fmt"
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
	for name, host := range map[string]bool{"engine": false, "hosts": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 90*time.Second, func(t *testing.T, w *world) {
				w.replicas(3, plan{host: host})
				if err := w.first.Close(t.Context()); err != nil { // it looks after its nodes, too
					t.Fatal(err)
				}
				till(5*time.Minute + 30*time.Second)
				before := w.requests()
				const n = 30
				time.Sleep(n * time.Minute)
				w.want(ticks(at(time.Minute), time.Minute, 35)...)
				each := (w.requests() - before) / n
				if each > 180 {
					t.Errorf("%d requests for each tick", each)
				}
				t.Logf("%d requests for each tick", each)
			})
		})
	}
}

// One slow job never delays another's look.
func TestManyJobs(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		const jobs = 20
		due := At(at(5*time.Minute), at(10*time.Minute))
		for i := range 3 {
			r := w.replica(fmt.Sprint(i), plan{schedule: At(at(time.Hour))})
			slow := replica{w: w, name: r.name, plan: plan{work: hold(8 * time.Minute)}}
			if _, err := r.service.Add("slow", due, slow.work); err != nil {
				t.Fatal(err)
			}
			for k := range jobs {
				if _, err := r.service.Add(fmt.Sprint("job", k), due, r.work); err != nil {
					t.Fatal(err)
				}
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
