package otellock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// What metrics and spans say of how callers waited.

var waitMetrics = []string{"handoffs", "wakeups", "queue.length"}

func TestWaits(t *testing.T) {
	held := &core.OpError{Op: core.OpAcquire, Err: core.ErrHeld}
	for name, c := range map[string]struct {
		out  core.Outcome
		want []string
		span string // the attributes of waiting
	}{
		"none":         {core.Outcome{}, nil, "   "},
		"told":         {core.Outcome{Place: 3, Woken: 1, HandedOver: true}, []string{"handoffs{name=jobs,wake=told} 1", "queue.length{name=jobs} 1", "wakeups{name=jobs,wake=told} 1"}, "3 1  true"},
		"told at last": {core.Outcome{Place: 1, Woken: 2, Polled: 5, HandedOver: true}, []string{"handoffs{name=jobs,wake=told} 1", "queue.length{name=jobs} 1", "wakeups{name=jobs,wake=polled} 5", "wakeups{name=jobs,wake=told} 2"}, "1 2 5 true"},
		"told in vain": {core.Outcome{Place: 1, Woken: 1, Polled: 1}, []string{"handoffs{name=jobs,wake=polled} 1", "queue.length{name=jobs} 1", "wakeups{name=jobs,wake=polled} 1", "wakeups{name=jobs,wake=told} 1"}, "1 1 1 "},
		"not told":     {core.Outcome{Place: 2, Polled: 4}, []string{"handoffs{name=jobs,wake=polled} 1", "queue.length{name=jobs} 1", "wakeups{name=jobs,wake=polled} 4"}, "2  4 "},
		"no queue":     {core.Outcome{Polled: 9}, []string{"handoffs{name=jobs,wake=polled} 1", "wakeups{name=jobs,wake=polled} 9"}, "  9 "},
		"in line":      {core.Outcome{LocalWait: time.Second}, []string{"handoffs{name=jobs,wake=local} 1"}, "   "},
		"in line, then told": {core.Outcome{LocalWait: time.Second, Place: 1, Woken: 1, HandedOver: true},
			[]string{"handoffs{name=jobs,wake=told} 1", "queue.length{name=jobs} 1", "wakeups{name=jobs,wake=told} 1"}, "1 1  true"},
		"in line, then not told": {core.Outcome{LocalWait: time.Second, Polled: 1}, []string{"handoffs{name=jobs,wake=polled} 1", "wakeups{name=jobs,wake=polled} 1"}, "  1 "},
		"in vain":                {core.Outcome{Err: held, LocalWait: time.Second, Place: 7, Woken: 1, Polled: 2}, []string{"queue.length{name=jobs} 1", "wakeups{name=jobs,wake=polled} 2", "wakeups{name=jobs,wake=told} 1"}, "7 1 2 "},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGauge(t)
			_, end := g.observer(WithSpanThreshold(0)).Start(t.Context(), core.Op{Kind: core.OpAcquire, Name: "jobs"})
			end(c.out)
			if got := g.counted(waitMetrics...); !slices.Equal(got, c.want) {
				t.Errorf("measured %q, want %q", got, c.want)
			}
			s := g.ended()[0]
			if got := strings.Join([]string{attr(s, AttrPlace), attr(s, AttrWoken), attr(s, AttrPolled), attr(s, AttrHandedOver)}, " "); got != c.span {
				t.Errorf("the span says %q, want %q", got, c.span)
			}
		})
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

// A length is counted as it is, up to the longest queue that there can be.
func TestQueueLengths(t *testing.T) {
	g := newGauge(t)
	o := g.observer()
	for _, place := range []int{1, 2, 1024} {
		_, end := o.Start(t.Context(), core.Op{Kind: core.OpAcquire})
		end(core.Outcome{Place: place, Err: context.Canceled})
	}
	for _, m := range g.collect().ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[int64]); ok {
			p := h.DataPoints[0]
			if n := len(p.BucketCounts); m.Name != MetricQueueLength || m.Unit != "{request}" || p.Sum != 1027 || p.BucketCounts[0] != 1 || p.BucketCounts[1] != 1 || p.BucketCounts[n-2] != 1 {
				t.Errorf("%s in %s: %v of %v", m.Name, m.Unit, p.BucketCounts, p.Bounds)
			}
			return
		}
	}
	t.Error("not measured")
}
