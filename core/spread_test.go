package core

import (
	"sync/atomic"
	"testing"
	"time"
)

// spreading is a process that has completed "k" on nodes 0 and 1. Each of its completions that reach node 2 from
// then on is counted; while lose says so they are refused.
func spreading(t *testing.T, w *world, lose func() bool) (p *process, asked *atomic.Int64) {
	t.Helper()
	p, asked = w.process(), new(atomic.Int64)
	lease := w.acquire(p, "k")
	p.links[2].decide(func(s *script, _ []any) fate {
		if s != completeScript {
			return fate{}
		}
		asked.Add(1)
		return fate{refuse: lose()}
	})
	w.complete(lease, "result")
	refusalsHeard()
	return p, asked
}

// What a bare quorum holds is brought to the others, with the retention it has there.
func TestRecordSpreads(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		start := time.Now()
		p, _ := spreading(t, w, func() bool { return time.Since(start) < 4500*time.Millisecond })
		w.nodes[2].Flush() // it accepts the record all the same, since that is decided
		time.Sleep(4 * time.Second)
		if w.recordOn(p, 2, "k") != "" {
			t.Fatal("the schedule is off: node 2 has the record")
		}
		time.Sleep(5 * time.Second)
		if there, here := w.recordOn(p, 2, "k"), w.recordOn(p, 0, "k"); there != here {
			t.Errorf("node 2 holds %q, node 0 %q", there, here)
		}
	})
}

func TestSpreadEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, asked := spreading(t, w, func() bool { return true })
		time.Sleep(2 * p.p.maxTTL)
		if asked.Load() < 4 {
			t.Errorf("offered %d times", asked.Load())
		}
		asked.Store(0)
		time.Sleep(time.Hour)
		if asked.Load() > 0 {
			t.Errorf("offered %d times, long after the max TTL", asked.Load())
		}
	})
}

func TestSpreadDoesNotHoldUpClose(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, asked := spreading(t, w, func() bool { return true })
		asked.Store(0)
		start := time.Now()
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > p.p.nodeTimeout || asked.Load() != 1 {
			t.Errorf("closed after %v, with %d attempts, want one", d, asked.Load())
		}
	})
}

// A node that has not answered yet may have the record.
func TestSpreadWaitsForAnswers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		asked := p.counting(completeScript)
		p.links[2].decide(func(s *script, _ []any) fate {
			if s == completeScript {
				asked.Add(1)
			}
			return fate{replyDelay: 1500 * time.Millisecond}
		})
		w.complete(lease, "result")
		time.Sleep(time.Minute)
		if n := asked.Load(); n != 3 {
			t.Errorf("%d completions sent, want one to each node", n)
		}
	})
}
