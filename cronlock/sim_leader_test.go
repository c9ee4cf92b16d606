package cronlock_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
)

// A reign is a call of OnElected.
type reign struct {
	leads *process
	term  uint64
	lease *core.Lease
	done  bool // it has returned
}

// judgeTerm: only the leader starts ticks. A start that is being recorded when its Service is closed leaves the term.
func (w *world) judgeTerm(v *visit) {
	if v.p.elector != nil && w.leads != v.p && !v.p.closed && v.ctx.Err() == nil {
		w.Violation("tick %s starts on %s, which does not lead", clock(v.Tick), v.p.name)
	}
}

// elected is OnElected. On each second process it lasts until its context ends, and some time more.
func (p *process) elected(ctx context.Context, t leader.Term) {
	if now, err := p.elector.Term(); err == nil && now != t { // it may ask
		p.Violation("%s is elected for %v, and leads in %v", p.name, t, now)
	}
	linger, lasts := p.accede(ctx, t)
	if !lasts {
		return
	}
	select {
	case <-ctx.Done():
		p.trouble(linger, "OnElected goes on")
		time.Sleep(linger)
	case <-p.died:
	}
	why, sick := context.Cause(ctx), p.elector.Check(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if lost := errors.Is(why, core.ErrLost); !p.dead && (!lost && !(errors.Is(why, leader.ErrNotLeader) && p.asked) || lost && linger > 0 && sick == nil) {
		p.Violation("%s: the context of OnElected ended with %v, and its health is: %v", p.name, why, sick)
	}
	if p.reigns--; p.term == t.FencingToken {
		p.done = true
	}
}

// accede judges that a process becomes leader: the one before does not lead any more, and what runs in its term has ended,
// unless the term was lost. It returns whether this call of OnElected lasts, and for how long after the end of its context.
func (p *process) accede(ctx context.Context, t leader.Term) (linger time.Duration, lasts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return 0, false
	}
	p.Tracef("%s leads", p.name)
	if t.FencingToken <= p.term {
		p.Violation("term %d after %d", t.FencingToken, p.term)
	}
	if last := p.reign; last.leads != nil && !last.done && !last.leads.dead && last.lease.Lost() == nil {
		p.Violation("%s is elected, and OnElected of %s goes on", p.name, last.leads.name)
	}
	rests := 3 * time.Second
	if p.Is("observer") == 1 {
		rests -= time.Millisecond // it is slow, and was told later that the process has resigned
	}
	if since := time.Since(p.resigned); p.reigns > 0 || since < rests {
		p.Violation("%s is elected %v after it resigned, and OnElected goes on %d times", p.name, since, p.reigns)
	}
	lease, _ := core.FromContext(ctx)
	lasts = p.number%2 == 1
	p.reign = reign{leads: p, term: t.FencingToken, lease: lease, done: !lasts}
	for _, other := range p.replicas {
		if other != nil && other != p && other.elector.IsLeader(ctx) == nil {
			p.Violation("%s is elected, and %s leads", p.name, other.name)
		}
	}
	for _, v := range p.visits {
		if v.tick != nil && v.p != p && v.over.IsZero() && !v.p.dead && !v.p.closed && v.ctx.Err() == nil { // runs of a closed Service leave the term
			p.Violation("%s is elected, and tick %s of %s runs", p.name, clock(v.Tick), v.p.name)
		}
	}
	if lasts {
		p.reigns++
	}
	return time.Duration(p.rng.IntN(int(lingers/time.Second)+1)) * time.Second, lasts
}

// lingers is for how long OnElected goes on after the end of its context, at most.
const lingers = 3 * time.Second

// yielded judges that the term in which a Service was closed has ended, whatever still runs: another process may lead.
func (p *process) yielded(closed time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return
	}
	p.Count("yielded")
	if p.running > 0 {
		p.Count("yielded during a run")
	}
	if p.termEnded.Before(closed) {
		p.Violation("%s closed its Service at %s, and its term goes on", p.name, clock(closed))
	}
}

// resign makes a process give up its term: nothing enters it any more.
func (p *process) resign() {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	p.trouble(0, "resigns")
	_, err := p.elector.Term()
	p.elector.Resign()
	if _, leave, refused := p.elector.Enter(p.host); err == nil && refused == nil {
		p.Violation("%s: Enter after Resign", p.name)
		leave()
	}
}

// sick judges the probe of a process that has been cut off for long.
func (p *process) sick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.elector != nil && !p.cut.IsZero() && time.Since(p.cut) > p.ttl+10*time.Second {
		p.Count("sick")
		if p.elector.Check(p.host) == nil {
			p.Violation("%s is well, and cut off since %s", p.name, clock(p.cut))
		}
	}
	p.cut = time.Time{}
}

// judgeElection: where all is well, somebody leads, all know who, and all could.
func (w *world) judgeElection() {
	w.mu.Lock()
	all, now := append([]*process(nil), w.replicas...), w.reign
	quiet := w.quiet(time.Now()) && !slices.ContainsFunc(w.visits, func(v *visit) bool { // a term goes on until its runs have ended
		justNow := !v.over.IsZero() && time.Since(v.over) < 2*time.Second // others learn within two seconds that it is over
		return !v.p.dead && (v.over.IsZero() || justNow) && (v.ctx.Err() != nil || v.p.asked)
	})
	w.mu.Unlock()
	for _, p := range all {
		if p == nil || p.elector == nil || p.closed || !quiet {
			continue
		}
		w.Count("healthy")
		h, err := p.elector.Leader(w.Context())
		if sick := p.elector.Check(w.Context()); sick != nil || err != nil || h.Candidate != now.leads.name || h.Term != now.term && h.Term != 0 {
			w.Violation("%s: %v; and %+v leads, %v; that is %s in term %d", p.name, sick, h, err, now.leads.name, now.term)
		}
		if leads := p.elector.IsLeader(w.Context()); (leads == nil) != (p == now.leads) || leads != nil && !errors.Is(leads, leader.ErrNotLeader) {
			w.Violation("%s: %v; and %s leads", p.name, leads, now.leads.name)
		}
	}
}
