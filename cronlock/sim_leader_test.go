package cronlock_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
)

// A reign is a term of a leader, and the call of OnElected for it.
type reign struct {
	leads *process
	term  uint64
	lease *core.Lease
	done  bool // OnElected has returned, or need not be waited for
}

// judgeTerm checks that only the leader starts ticks. A start that is being recorded when its Service is closed leaves
// the term.
func (w *world) judgeTerm(v *visit) {
	if v.p.elector != nil && w.leads != v.p && !v.p.closed && v.ctx.Err() == nil {
		w.Violation("tick %s starts on %s, which does not lead", clock(v.Tick), v.p.name)
	}
}

// elected is the function of OnElected. On every second process it goes on until its context ends, and for some time
// more.
func (p *process) elected(ctx context.Context, t leader.Term) {
	<-p.hasElector                                            // the process may be elected before leader.New has returned
	if now, err := p.elector.Term(); err == nil && now != t { // OnElected may call Term
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

// accede is called when a process is elected. It checks that no other process leads, and that the contexts of the
// previous term's runs have ended. OnElected of that term must have returned, unless the term was lost. accede returns
// whether this call of OnElected lasts, and for how long after the end of its context.
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
		rests -= time.Millisecond // a slow observer is notified of the resignation later
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
		// Runs of a closed Service leave the term.
		if v.tick != nil && v.p != p && v.over.IsZero() && !v.p.dead && !v.p.closed && v.ctx.Err() == nil {
			p.Violation("%s is elected, and tick %s of %s runs", p.name, clock(v.Tick), v.p.name)
		}
	}

	if lasts {
		p.reigns++
	}
	return time.Duration(p.rng.IntN(int(lingers/time.Second)+1)) * time.Second, lasts
}

// lingers is the longest time that OnElected goes on after the end of its context.
const lingers = 3 * time.Second

// yielded checks that the term in which a Service was closed has ended even if a run goes on, so that another process
// may lead.
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

// resign makes a process resign, and checks that no run can enter the term any more.
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

// sick checks that the health check of a process that was cut off for a long time fails.
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

// judgeElection checks that, if all is well, the latest leader leads, all processes know it, and all are healthy.
func (w *world) judgeElection() {
	w.mu.Lock()
	all, now := append([]*process(nil), w.replicas...), w.reign
	// A term goes on until its runs have ended, and the other processes notice its end within two seconds.
	quiet := w.quiet(time.Now()) && !slices.ContainsFunc(w.visits, func(v *visit) bool {
		justNow := !v.over.IsZero() && time.Since(v.over) < 2*time.Second
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
