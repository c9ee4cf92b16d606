package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// What failed, or was not sent, is no answer that Close would go on waiting for.
func TestAnswersOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world, p *process)
		want    bool
	}{
		"granted":  {func(*world, *process) {}, true},
		"refused":  {func(_ *world, p *process) { p.refused() }, false},
		"an error": {func(w *world, p *process) { w.nodes[0].Exec("HSET", p.e.Keys.Resource("k"), "f", "v") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				time.Sleep(time.Second)
				now := p.e.Clock.Now()
				c.prepare(w, p)
				p.TryAcquire(t.Context(), "k")
				if got := p.e.Answered() >= now; got != c.want {
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
		const leases = 3*node.MaxBatch + 1
		for i := range leases {
			w.acquire(p, fmt.Sprint(i))
		}
		p.e.hangUp = p.e.Nodes[0].Client.Close
		p.e.Nodes[0].Connections = 1 // so that they are released one batch after the other
		p.links[0].Set(coretest.Fate{ReplyDelay: p.p.nodeTimeout * 3 / 5}, wire.OpBatch, wire.OpRelease)
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
