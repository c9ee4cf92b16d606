package cronlock_test

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/internal/sim"
)

// Spans are the times of faults, and the times at which replicas had their jobs.
type spans struct {
	spansMu   sync.Mutex
	troubles, // faults that any process may feel
	steps []span // steps of the nodes' clocks, with their sizes
	nodesIll, replicasIll, there []span
}

type span struct {
	from, to time.Time
	who      int
	size     time.Duration
}

func (s span) has(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

// bound is the longest time that the latest due tick may wait for its start while all is well.
const bound = 3 * time.Second

// tail returns how long a fault may have effects after its end: until a lease or a term has run out, a node votes
// again, or a host that dropped a call is asked again.
func (w *world) tail() time.Duration { return w.ttl + 7*time.Second }

func (w *world) delay() time.Duration { return time.Duration(w.Is("delay")) * time.Millisecond }

// trouble records a fault that any process may feel.
func (w *world) trouble(long time.Duration, what string) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	now := time.Now()
	w.troubles = append(w.troubles, span{from: now, to: now.Add(long + w.tail())})
	w.Count("trouble: " + what)
}

// ill records a fault that one replica feels.
func (w *world) ill(who int, long time.Duration) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	now := time.Now()
	w.replicasIll = append(w.replicasIll, span{from: now, to: now.Add(long + w.tail()), who: who})
}

// struck records a fault of a node.
func (w *world) struck(s sim.Step) {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	now := time.Now()
	long := s.For + w.tail()
	if s.Do == "step clock" {
		long += time.Minute // for which a replica may use an offset that it measured before
		w.steps = append(w.steps, span{from: now, to: now.Add(long), size: time.Duration(s.N) * time.Millisecond})
	}
	w.nodesIll = append(w.nodesIll, span{from: now, to: now.Add(long), who: s.Who % len(w.nodes)})
}

// present records that a replica has its job.
func (w *world) present(p *process) {
	p.left = time.Time{}
	p.arrived = time.Now()
}

// absent records that a replica does not have its job any more.
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

// quiet reports whether nothing has been wrong with any node or replica since an instant.
func (w *world) quiet(since time.Time) bool {
	w.spansMu.Lock()
	defer w.spansMu.Unlock()
	wrong := func(s span) bool { return s.to.After(since) }
	return !slices.ContainsFunc(w.troubles, wrong) && !slices.ContainsFunc(w.nodesIll, wrong) && !slices.ContainsFunc(w.replicasIll, wrong)
}

// well reports whether the latest tick must start soon: a quorum of the nodes and a replica are well, no fault affects
// all processes, and the job does not run. It also reports whether a minority of the nodes is ill.
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

// A start is a start of a tick that may be on record.
type start struct {
	*tick
	attempt int
	since   time.Time
}

// starts returns the starts of all ticks, in the order of time.
func (w *world) starts() (all []start) {
	for _, t := range w.oracle.ticks {
		for n, when := range t.when {
			all = append(all, start{t, n + 1, when})
		}
	}
	slices.SortStableFunc(all, func(a, b start) int { return a.since.Compare(b.since) })
	return all
}

// owed returns what must start at an instant: the last start again, if it was not completed, or the latest due tick. It
// returns "" if nothing must start.
func (w *world) owed(at, due time.Time, last start) (what string) {
	started := last.tick != nil
	if started && !last.forgotten && last.attempt <= last.sure && last.attempt < min(last.least, w.fewest) {
		for _, v := range w.visits {
			if v.tick == last.tick && v.Attempt == last.attempt && !v.completed && !v.over.IsZero() && v.over.Before(at) {
				return "another start of " + clock(last.at)
			}
		}
	}

	if due.IsZero() || started && !due.After(last.at) || at.Add(w.off()).Sub(due) > w.grace-time.Second {
		return ""
	}
	return clock(due)
}

// judgeProgress checks that, while a replica and a quorum are well, the latest due tick starts within a bounded time,
// and so does a tick that was started and not completed.
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
	var since time.Time // since when a start has been owed while all was well
	var limit time.Duration

	next := 0
	all := w.instants()
	starts := w.starts()
	var last start // of the latest tick that was started
	for at := w.Began; at.Before(time.Now()); at = at.Add(250 * time.Millisecond) {
		for next < len(all) && !all[next].After(at.Add(w.off())) {
			next++
		}

		var due time.Time
		if next > 0 {
			due = all[next-1]
		}

		for len(starts) > 0 && !starts[0].since.After(at) {
			if last.tick == nil || !starts[0].at.Before(last.at) {
				last = starts[0]
			}
			starts = starts[1:]
		}

		what := w.owed(at, due, last)
		if !since.IsZero() && slices.ContainsFunc(w.visits, func(v *visit) bool { return v.tick != nil && v.began.After(since) && !v.began.After(at) }) {
			since = time.Time{} // a run has begun in between: ticks may come faster than the steps of this loop
		}

		var well, minority bool
		if what != "" {
			well, minority = w.well(at)
		}
		if minority { // each read of a record may wait for an ill node
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

// limit returns how long a tick may wait for its start while all is well. It includes the time after which the engine
// repeats a call that gocron has dropped because of its limits.
func (w *world) limit(at time.Time, due []time.Time) time.Duration {
	limit := bound + w.reading(at, due)
	if w.Is("limit") > 0 {
		limit += 6 * time.Second
	}
	return limit
}

// reading returns how long a poll may take to read records.
func (w *world) reading(at time.Time, due []time.Time) time.Duration {
	return time.Duration(50+20*w.unread(at, due)) * w.delay()
}

// unread returns how many ticks a poll may have to read: the due ticks since the last one that was started, at most
// 100.
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

// instants returns all ticks from four periods before the beginning until an hour from now.
func (w *world) instants() (all []time.Time) {
	for at := w.schedule.Next(w.Began.Add(w.off() - 4*period(w.Program))); !at.IsZero() && at.Before(time.Now().Add(time.Hour)); at = w.schedule.Next(at) {
		all = append(all, at)
	}
	return all
}
