package core

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Whoever is on call has to learn from the error which nodes failed, and why.
func TestErrorNamesNodes(t *testing.T) {
	type row struct {
		fault func(w *world, p *process)
		want  []string
	}
	bubbles(t, 3, map[string]row{
		"clock": {func(w *world, p *process) {
			w.nodes[0].StepClock(3 * time.Second)
			w.nodes[1].StepClock(-2 * time.Second)
		}, []string{"node 0 (embedded-", "off by 3s", "node 1 (embedded-", "off by -2s"}},
		"memory": {func(w *world, p *process) {
			w.nodes[0].RestartEmpty()
			w.nodes[1].Flush()
		}, []string{"node 0", "node 1", "quarantined for another 10s", "retry after 10s"}},
		"network": {func(w *world, p *process) {
			p.links[0].Set(coretest.Fate{Refuse: true})
			p.links[2].Set(coretest.Fate{Lose: true})
			p.links[1].Set(coretest.Fate{Lose: true})
		}, []string{"node 0", "connection refused", "node 1", "no answer within the node timeout"}},
		"late": {func(_ *world, p *process) {
			p.set(coretest.Fate{Delay: p.p.Window * 3 / 2}, wire.OpAcquire)
		}, []string{"the request arrived too late"}},
		"replica": {func(w *world, p *process) {
			w.nodes[0].SetReplica(true)
			w.nodes[1].SetReplica(true)
		}, []string{"node 0", "is a replica, not a master"}},
	}, func(t *testing.T, w *world, c row) {
		p := w.process()
		c.fault(w, p)
		_, err := p.TryAcquire(t.Context(), "some key")
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, append(c.want, `acquire "some key"`)...)
	})
}
