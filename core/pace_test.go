package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A batch is bounded in what it brings along, too, so that large results do not keep a server busy for long; one
// request goes whatever its size.
func TestBatchesAreBoundedInBulk(t *testing.T) {
	sizes := func(bulks ...int) (loads []int) {
		var queue []request
		for _, b := range bulks {
			queue = append(queue, request{r: &round{bulk: b}})
		}
		for len(queue) > 0 {
			var f flight
			queue = f.load(queue)
			loads = append(loads, len(f.batch))
		}
		return loads
	}
	for _, c := range []struct{ bulks, want []int }{
		{make([]int, maxBatch), []int{maxBatch}},
		{make([]int, maxBatch+1), []int{maxBatch, 1}},
		{[]int{64 << 10, 0, 64 << 10, 64 << 10}, []int{1, 1, 1, 1}},
		{[]int{30 << 10, 30 << 10, 0, 0, 30 << 10}, []int{4, 1}},
	} {
		if got := sizes(c.bulks...); !slices.Equal(got, c.want) {
			t.Errorf("bulks of %d requests travel as %v, want %v", len(c.bulks), got, c.want)
		}
	}
	var f flight
	urgent := f.load([]request{{r: &round{bulk: 64 << 10}}})
	if asking := f.load([]request{{r: &round{}}}); len(urgent) != 0 || len(asking) != 1 {
		t.Errorf("%d and %d are left behind a batch that is full", len(urgent), len(asking))
	}
}

// What failed, or was not sent, is no answer that Close would go on waiting for.
func TestAnswersOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world, p *process)
		want    bool
	}{
		"granted":  {func(*world, *process) {}, true},
		"refused":  {func(_ *world, p *process) { p.refused() }, false},
		"an error": {func(w *world, p *process) { w.nodes[0].Exec("HSET", p.e.keys.Resource("k"), "f", "v") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				time.Sleep(time.Second)
				now := p.e.clock.Now()
				c.prepare(w, p)
				p.TryAcquire(t.Context(), "k")
				if got := p.e.answered.Load() >= now; got != c.want {
					t.Errorf("answered: %v", got)
				}
			})
		})
	}
}

// Close waits for releases for as long as nodes answer, however many there are: it closes clients that are its own
// when none has answered for the node timeout.
func TestCloseWaitsWhileNodesAnswer(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		const leases = 3*maxBatch + 1
		for i := range leases {
			w.acquire(p, fmt.Sprint(i))
		}
		p.e.hangUp = p.e.nodes[0].client.Close
		p.e.nodes[0].connections = 1 // so that they are released one batch after the other
		p.links[0].set(fate{replyDelay: p.p.nodeTimeout * 3 / 5}, wire.OpBatch, wire.OpRelease)
		start := time.Now()
		p.Close(over())
		if d := time.Since(start); d < 2*p.p.nodeTimeout {
			t.Errorf("the schedule is off: closed within %v", d)
		}
		for i := range leases {
			w.wantFree(other, fmt.Sprint(i))
		}
	})
}

// The more batches are under way, the longer the next one waits; the second half of the connections goes slowly.
func TestPace(t *testing.T) {
	const timeout = time.Second
	for _, c := range []struct {
		nodes, flights int
		want           time.Duration
	}{
		{3, 0, 0}, {3, 1, minPace}, {3, 2, minPace}, {3, 4, 4 * minPace}, {3, 10, 25 * minPace}, {3, 11, timeout / latePart},
		{1, 0, 0}, {1, 1, 0}, {1, 2, minPace}, {1, 5, 4 * minPace}, {1, 11, timeout / latePart},
	} {
		l := lane{e: &ensemble{pace: minPace, nodes: make([]*node, c.nodes)}, n: &node{connections: 20}, flights: c.flights, timeout: timeout}
		if got := l.pace(); got != c.want {
			t.Errorf("%d nodes, %d batches under way: %v, want %v", c.nodes, c.flights, got, c.want)
		}
	}
}
