package main

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

func TestFinish(t *testing.T) {
	var done []time.Duration
	for i := range 20 {
		done = append(done, time.Duration(i+1)*time.Second)
	}
	all, some, few := finishOf(20, done, time.Minute), finishOf(20, done[:18], time.Minute), finishOf(20, done[:17], time.Minute)
	for got, want := range map[string]string{
		all.String(): "20.0 s", some.String(): "> 60.0 s, 2 left",
		all.ratio(10 * time.Second): "2.00×", some.ratio(10 * time.Second): "> 6.00×",
		short(all.most): "18.0 s", short(some.most): "18.0 s", short(few.most): "–",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if !all.within(20*time.Second) || all.within(19*time.Second) || some.within(time.Hour) {
		t.Error("within")
	}
}

func TestQuartiles(t *testing.T) {
	if got := quartiles([]float64{4e3, 1e3, 2e3, 5e3, 3e3}); got != "3 µs (2 µs to 4 µs)" {
		t.Error(got)
	}
}

// Each task is done once, with locks and without.
func TestQueueRun(t *testing.T) {
	testutil.NewServers(t, 0) // skips the test if there is no redis-server
	for _, nodes := range []int{0, 1} {
		b := batch{kind: "task", tasks: 20}
		w, err := queueRun{servers: 2, concurrency: 2, nodes: nodes, batches: []batch{b}, limit: time.Minute}.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if f := w.finishes[b.kind]; f.left > 0 || f.after <= 0 || w.perTask() != "1.00" {
			t.Errorf("%d nodes: %+v", nodes, w)
		}
	}
}

// A turn goes from gate to gate, so that all of its tasks are done.
func TestCostTurn(t *testing.T) {
	testutil.NewServers(t, 0)
	err := onNodes(2+queueNodes, 0, func(on *nodes) error {
		es, err := costEntrants(t.Context(), on.addrs())
		for _, e := range es {
			if _, err := e.turn(t.Context(), 1); err != nil {
				t.Error(err)
			}
			if got := e.fleet.workers[0].taken.Load(); got != costTasks+2 {
				t.Errorf("%s: %d deliveries", e.name, got)
			}
			err = errors.Join(err, e.close())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
