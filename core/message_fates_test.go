package core

import (
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// What happens to the requests of a process, whichever node they go to.

// set makes f the fate of requests that run one of scripts, or all when none is named.
func (p *process) set(f coretest.Fate, scripts ...wire.Op) {
	for _, k := range p.links {
		k.Set(f, scripts...)
	}
}

// next gives the next request to each node that runs s its fate; the others pass.
func (p *process) next(f coretest.Fate, s wire.Op) {
	for _, k := range p.links {
		k.Next(f, s)
	}
}

// mend lets all requests pass. What is lost fails now.
func (p *process) mend() {
	for _, k := range p.links {
		k.Mend()
	}
}

// cut swallows all that p sends, until mend: it falls silent, as a process that was killed.
func (p *process) cut() { p.set(coretest.Fate{Lose: true}) }

// refused has every node refuse p at once, until mend.
func (p *process) refused() { p.reaches() }

// reaches has p reach these nodes, and no other, from now on.
func (p *process) reaches(nodes ...int) *process {
	for i, k := range p.links {
		k.Mend()
		if !slices.Contains(nodes, i) {
			k.Set(coretest.Fate{Refuse: true})
		}
	}
	return p
}

// asksAllFirst makes all requests of a round leave before any node answers; see LeaveTogether.
func (p *process) asksAllFirst() *process {
	for _, k := range p.links {
		k.LeaveTogether()
	}
	return p
}

// together makes the requests that f submits leave in one batch for each node: another request is under way meanwhile, so
// that they wait until the lanes' next batch may leave.
func (w *world) together(p *process, f func()) {
	w.t.Helper()
	p.set(coretest.Fate{Delay: time.Millisecond})
	var ahead sync.WaitGroup
	ahead.Go(func() { p.TryAcquire(w.t.Context(), "ahead of what travels together") })
	synctest.Wait()
	p.mend()
	f()
	ahead.Wait()
}

// records has COMPLETE of p reach these nodes, and no other.
func (p *process) records(nodes ...int) *process {
	for i, k := range p.links {
		k.Mend()
		if !slices.Contains(nodes, i) {
			k.Set(coretest.Fate{Refuse: true}, wire.OpComplete)
		}
	}
	return p
}

// completeOn completes where only these nodes hear of it.
func (p *process) completeOn(lease *Lease, result string, nodes ...int) error {
	p.records(nodes...)
	return lease.Complete(over(), []byte(result))
}

// avoids has p fail at node i until it no longer asks it.
func (w *world) avoids(p *process, i int) {
	w.t.Helper()
	p.links[i].Set(coretest.Fate{Refuse: true})
	for range node.MaxFailures {
		w.release(w.acquire(p, "another key"))
		coretest.RefusalsHeard()
	}
}
