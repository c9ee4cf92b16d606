package cronlock_test

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/sim"
)

// Spans are when something was not well, and which replicas were there.
type spans struct {
	spansMu sync.Mutex
	troubles,
	steps []span // of all; of the nodes' clocks, with their size
	nodesIll, replicasIll, there []span
}

type span struct {
	from, to time.Time
	who      int
	size     time.Duration
}

func (s span) has(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

// bound is how long the latest tick that is due may wait for its start while all is well.
const bound = 3 * time.Second

// tail is how long a fault is felt after its end: a lease or a term runs out, a node does not vote, a host that dropped a
// call is called again.
func (w *world) tail() time.Duration { return w.ttl + 7*time.Second }

func (w *world) delay() time.Duration { return time.Duration(w.Is("delay")) * time.Millisecond }

// trouble tells of a fault that anybody may feel.
func (w *world) trouble(long time.Duration, what string) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	now := time.Now()
	w.troubles = append(w.troubles, span{from: now, to: now.Add(long + w.tail())})
	w.Count("trouble: " + what)
}

// ill tells of one that a replica feels.
func (w *world) ill(who int, long time.Duration) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	now := time.Now()
	w.replicasIll = append(w.replicasIll, span{from: now, to: now.Add(long + w.tail()), who: who})
}

// struck tells of a fault of a node.
func (w *world) struck(s sim.Step) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	now := time.Now()
	long := s.For + w.tail()
	if s.Do == "step clock" {
		long += time.Minute // in which a replica may go by what it has heard
		w.steps = append(w.steps, span{from: now, to: now.Add(long), size: time.Duration(s.N) * time.Millisecond})
	}
	w.nodesIll = append(w.nodesIll, span{from: now, to: now.Add(long), who: s.Who % len(w.nodes)})
}

// present and absent tell that a replica has its job, and that it has it no more.
func (w *world) present(p *process) {
	p.left = time.Time{}
	p.arrived = time.Now()
}

func (w *world) absent(p *process) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	if !p.arrived.IsZero() {
		w.there = append(w.there, span{from: p.arrived, to: time.Now(), who: p.who})
	}
	p.arrived = time.Time{}
}

// clocks returns how far the nodes' clocks may be behind and ahead now, as replicas know them.
func (w *world) clocks() (behind, ahead time.Duration) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	behind, ahead = w.off(), w.off()
	for _, s := range w.steps {
		if s.has(time.Now()) {
			behind, ahead = min(behind, w.off()+s.size), max(ahead, w.off()+s.size)
		}
	}
	return behind, ahead
}

// quiet reports whether nothing has been wrong anywhere since then.
func (w *world) quiet(since time.Time) bool {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	wrong := func(s span) bool { return s.to.After(since) }
	return !slices.ContainsFunc(w.troubles, wrong) && !slices.ContainsFunc(w.nodesIll, wrong) && !slices.ContainsFunc(w.replicasIll, wrong)
}

// well reports whether the latest tick must start soon: a quorum of the nodes and a replica are well, nothing that hits all
// is felt, and the job does not run. A minority may be ill.
func (w *world) well(at time.Time) (well, minority bool) {
	has := func(s span) bool { return s.has(at) }
	if slices.ContainsFunc(w.troubles, has) {
		return false, false
	}
	ill, fit := map[int]bool{}, false
	for _, s := range w.nodesIll {
		if s.has(at) {
			ill[s.who] = true
		}
	}
	for _, s := range w.there {
		fit = fit || s.has(at) && !slices.ContainsFunc(w.replicasIll, func(i span) bool { return i.who == s.who && i.has(at) })
	}
	busy := slices.ContainsFunc(w.visits, func(v *visit) bool {
		return !at.Before(v.began) && (v.over.IsZero() || at.Before(v.over))
	})
	return fit && len(ill) <= (len(w.nodes)-1)/2 && !busy, len(ill) > 0
}

// owed reports what is to start at an instant: a tick that was started and not completed, or the latest that is due.
func (w *world) owed(at, due time.Time) (what string) {
	var last *tick // that was started, or may have been
	attempt := 0
	for _, t := range w.oracle.ticks {
		for n, when := range t.when {
			if !when.After(at) && (last == nil || !t.at.Before(last.at)) {
				last, attempt = t, n+1
			}
		}
	}
	if last != nil && !last.forgotten && attempt <= last.sure && attempt < min(last.least, w.fewest) {
		for _, v := range w.visits {
			if v.tick == last && v.Attempt == attempt && !v.completed && !v.over.IsZero() && v.over.Before(at) {
				return "another start of " + clock(last.at)
			}
		}
	}
	if due.IsZero() || last != nil && !due.After(last.at) || at.Add(w.off()).Sub(due) > w.grace-time.Second {
		return ""
	}
	return clock(due)
}

// judgeProgress: while a replica and a quorum are well, the latest tick that is due starts within a bounded time, and so does
// one that was started and not completed.
func (w *world) judgeProgress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.replicas {
		if p != nil {
			w.absent(p)
		}
	}
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	var since time.Time // when something was owed, and all was well
	var limit time.Duration
	next := 0
	all := w.instants()
	for at := w.Began; at.Before(time.Now()); at = at.Add(250 * time.Millisecond) {
		for next < len(all) && !all[next].After(at.Add(w.off())) {
			next++
		}
		var due time.Time
		if next > 0 {
			due = all[next-1]
		}
		what := w.owed(at, due)
		if slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick != nil && v.began.After(since) && !v.began.After(at) }) {
			since = time.Time{} // ticks may come faster than this looks at them
		}
		well, minority := w.well(at)
		if minority { // each look at a record may wait for it
			limit = w.limit(at, all[:next]) + 10*time.Second + time.Duration(w.unread(at, all[:next]))*w.ttl/10
		}
		switch {
		case what == "" && next < len(all) && !slices.ContainsFunc(w.visits, func(v *visit) bool { return v.over.After(at) && v.over.Before(all[next]) }):
			since, at = time.Time{}, all[next].Add(-w.off())
		case what == "" || !well:
			since = time.Time{}
		case since.IsZero():
			since, limit = at, w.limit(at, all[:next])
		case at.Sub(since) > limit:
			w.Violation("%s has not started by %s, and all has been well since %s", what, clock(at), clock(since))
			return
		default:
			w.Count("progress")
		}
	}
}

// limit is how long a tick may wait for its start while all is well: a call that gocron's limits drop is repeated.
func (w *world) limit(at time.Time, due []time.Time) time.Duration {
	limit := bound + w.reading(at, due)
	if w.Is("limit") > 0 {
		limit += 6 * time.Second
	}
	return limit
}

// reading is how long a look for ticks may take.
func (w *world) reading(at time.Time, due []time.Time) time.Duration {
	return time.Duration(50+20*w.unread(at, due)) * w.delay()
}

// unread is how many ticks a look may have to read: those that are due, until one was started.
func (w *world) unread(at time.Time, due []time.Time) int {
	reads := 100
	for _, v := range w.visits {
		if v.tick != nil && v.began.Before(at) {
			started, _ := slices.BinarySearchFunc(due, v.Tick, time.Time.Compare)
			reads = min(100, len(due)-started)
		}
	}
	return reads
}

// instants are all ticks until now, the one before the beginning too.
func (w *world) instants() (all []time.Time) {
	for at := w.schedule.Next(w.Began.Add(w.off() - 4*period(w.Program))); !at.IsZero() && at.Before(time.Now().Add(time.Hour)); at = w.schedule.Next(at) {
		all = append(all, at)
	}
	return all
}
