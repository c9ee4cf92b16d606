package otellock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// What metrics and spans say of how callers waited.

func TestWaits(t *testing.T) {
	for waited, want := range map[core.Waited][]string{
		"":                nil,
		core.WaitedTold:   {"handoffs{name=jobs,wake=told} 1"},
		core.WaitedPolled: {"handoffs{name=jobs,wake=polled} 1"},
		core.WaitedInLine: {"handoffs{name=jobs,wake=local} 1"},
	} {
		g := newGauge(t)
		_, end := g.observer(WithSpanThreshold(0)).Start(t.Context(), core.Op{Kind: core.OpAcquire, Name: "jobs"})
		end(core.Outcome{Waited: waited})
		if got := g.counted("handoffs"); !slices.Equal(got, want) {
			t.Errorf("%q: measured %q, want %q", waited, got, want)
		}
		if got := attr(g.ended()[0], AttrWake); got != string(waited) {
			t.Errorf("%q: the span says %q", waited, got)
		}
	}
}

// The same of calls that do wait: in the holder's process, told by the nodes, and left to find out.
func TestWaitsOfALocker(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := w.observer()
		locks, others := w.locks(o), w.locks(o)
		waits := func(l *core.Locker) <-chan *core.Lease {
			got := make(chan *core.Lease, 1)
			go func() {
				lease, err := l.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			return got
		}
		steps := []struct {
			from, to *core.Locker
			silent   bool
			want     string
		}{
			{locks, locks, false, "handoffs{name=jobs,wake=local} 1"},
			{locks, others, false, "handoffs{name=jobs,wake=told} 1"},
			{others, locks, true, "handoffs{name=jobs,wake=polled} 1"},
		}
		lease := w.acquire(locks, "k")
		for _, step := range steps {
			next := waits(step.to)
			w.each(func(n *testutil.Node) { n.DropMessages(step.silent) })
			lease.Release(t.Context())
			lease = <-next
			if got := w.counted("handoffs"); !slices.Contains(got, step.want) {
				t.Errorf("%q, want %q among them", got, step.want)
			}
		}
		if n := w.points()["handoffs{name=jobs,wake=told}"]; n != 1 {
			t.Errorf("told %v times", n)
		}
		lease.Release(t.Context())
	})
}
