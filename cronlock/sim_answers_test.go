package cronlock_test

import (
	"errors"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/sim"
)

// forget is called before a node loses its memory. It marks the ticks with a record that a quorum of the nodes will
// then be without. Such a record does not count any more: guarantee 7 of core.
func (w *world) forget(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.emptied = true
	for _, t := range w.oracle.ticks {
		for n := 1; n <= t.begun+1; n++ {
			key := startKey(t.at, n)
			if n > t.begun {
				key = endKey(t.at)
			}
			with := func(but int) int { return sim.Recorded(w.nodes, w.first.KeyPrefix(), key, but) }
			if with(-1) > 0 && len(w.nodes)-with(node) > len(w.nodes)/2 {
				t.forgotten = true
			}
		}
	}
}

// told judges the error of a call that started no run. A job that was removed meanwhile returns ErrClosed. job is nil
// if the error comes from a listener of gocron.
func (p *process) told(job *cronlock.Job, err error) {
	refused, ok := err.(*cronlock.Error) // the error of the job's function may wrap a *cronlock.Error
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return
	}
	if refused.Tick.IsZero() {
		p.answers++
	}

	t := p.oracle.ticks[refused.Tick.UnixNano()]
	behind, ahead := p.clocks()

	switch {
	case errors.Is(err, leader.ErrNotLeader):
		if p.elector == nil {
			p.Violation("%s: %v, without an elector", p.name, err)
		}
	case errors.Is(err, cronlock.ErrMissed):
		late := time.Now().Add(ahead).Sub(refused.Tick)
		// A start on record whose run did not begin counts as not made, unless the job may start again.
		isStarted := t != nil && t.sure > 0 && !t.forgotten && !p.neverRan(t, p.job)
		if isStarted || late < p.grace-time.Second {
			p.Violation("%s: %v, which is %v late", p.name, err, late)
		}
		if len(p.oracle.ticks) == 0 && !p.arrived.IsZero() && refused.Tick.Before(p.arrived.Add(min(0, behind))) {
			p.Violation("%s: %v, and the job is new", p.name, err)
		}
	case errors.Is(err, cronlock.ErrNotDue):
		if p.last != nil && !p.last.tick.forgotten && !p.last.Tick.After(time.Now().Add(behind)) {
			p.Violation("%s: %v, and ticks were started", p.name, err)
		}
		if !p.arrived.IsZero() && !refused.Tick.Before(p.arrived.Add(max(0, ahead))) {
			p.Violation("%s: %v, and the tick was due since the job was added", p.name, err)
		}
	case errors.Is(err, core.ErrDone):
		if !refused.Tick.IsZero() && (t == nil || t.begun == 0) {
			p.Violation("%s: %v, and it was not started", p.name, err)
		}
		if t != nil && job != nil && job == p.job && p.unbegun(t, job) {
			p.Violation("%s: %v, and it is this one's to begin", p.name, err)
		}
	case errors.Is(err, core.ErrClosed):
		if p.left.IsZero() && (job == nil || job == p.job) {
			p.Violation("%s: %v, and it is open", p.name, err)
		}
	}
}

// judgeHistory checks that History, on one replica, agrees with the oracle about the latest ticks.
func (w *world) judgeHistory() {
	w.mu.Lock()
	i := slices.IndexFunc(w.replicas, func(p *process) bool { return p != nil && p.job != nil })
	if i < 0 || !w.quiet(time.Now()) {
		w.mu.Unlock()
		return
	}
	job, latest := w.replicas[i].job, w.last
	w.mu.Unlock()

	past, err := job.History(w.Context(), 30)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && !w.quiet(time.Now()) { // a fault has happened meanwhile
		return
	}
	w.must(err)

	behind, ahead := w.clocks()
	forgotten := behind != ahead // a replica may not know of the latest ticks
	for _, h := range past {
		t := w.oracle.ticks[h.Tick.UnixNano()]
		if t == nil {
			t = &tick{}
		}
		w.Count("history")
		forgotten = forgotten || t.forgotten
		if forgotten || latest == nil || !h.Tick.Before(latest.Tick) { // the latest tick may be running
			continue
		}
		if h.Attempt < t.sure && (!t.ended || h.Attempt == 0) || h.Attempt > t.begun || t.ended && h.Ended.IsZero() || !t.ending && !h.Ended.IsZero() ||
			t.ended && (h.Error != "") != t.wrong || h.Superseded != (h.Attempt == 0) || len(h.Error) > 200 {
			w.Violation("the history of %s is %+v, and it is %+v", clock(h.Tick), h, *t)
		}
	}
}
