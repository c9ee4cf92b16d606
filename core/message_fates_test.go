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

// This file sets the fates of the requests of a process to all nodes.

// set makes f the fate of requests with one of the operations, or of all requests if none is given.
func (p *process) set(f coretest.Fate, scripts ...wire.Op) {
	for _, k := range p.links {
		k.Set(f, scripts...)
	}
}

// next makes f the fate of the next request with the operation s to each node. All other requests succeed.
func (p *process) next(f coretest.Fate, s wire.Op) {
	for _, k := range p.links {
		k.Next(f, s)
	}
}

// mend makes all requests succeed again. Requests that were lost fail now.
func (p *process) mend() {
	for _, k := range p.links {
		k.Mend()
	}
}

// cut loses all requests of p until mend is called, as if the process had been killed.
func (p *process) cut() { p.set(coretest.Fate{Lose: true}) }

// refused makes every node refuse the requests of p until mend is called.
func (p *process) refused() { p.reaches() }

// reaches makes all nodes except these refuse the requests of p from now on.
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

// together makes the requests that f submits leave in one batch for each node. Another request is under way meanwhile,
// so they wait until the next batch may leave.
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

// records makes all nodes except these refuse the completions of p from now on.
func (p *process) records(nodes ...int) *process {
	for i, k := range p.links {
		k.Mend()
		if !slices.Contains(nodes, i) {
			k.Set(coretest.Fate{Refuse: true}, wire.OpComplete)
		}
	}
	return p
}

// completeOn completes the lease on these nodes only.
func (p *process) completeOn(lease *Lease, result string, nodes ...int) error {
	p.records(nodes...)
	return lease.Complete(over(), []byte(result))
}

// avoids makes the requests of p to node i fail until p no longer asks the node.
func (w *world) avoids(p *process, i int) {
	w.t.Helper()
	p.links[i].Set(coretest.Fate{Refuse: true})
	for range node.MaxFailures {
		w.release(w.acquire(p, "another key"))
		coretest.RefusalsHeard()
	}
}
