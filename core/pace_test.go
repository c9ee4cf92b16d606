package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

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
		p.links[0].Set(coretest.Fate{ReplyDelay: p.p.nodeTimeout * 3 / 5}, wire.OpRelease)
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
