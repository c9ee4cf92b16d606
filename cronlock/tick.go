package cronlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// A tick is what a run is for. The zero tick is that of a run by hand.
type tick struct {
	at     time.Time     // the instant that the schedule names
	id     string        // of the tick on the nodes; empty: there is none
	shared bool          // the id is the same on all replicas
	gap    time.Duration // not 0: replicas do not share the ticks, so nobody starts the job for so long
	slot   string        // of the tick, where each has a gap of its own
	period time.Duration // the least time between ticks
	next   time.Time     // the job's next tick, if known

	late     bool // it is not run on schedule: it waits for who is in the way
	deferred bool // because a run was late that it met
}

// gocron does not say for which tick it calls Lock. It is the latest one that is due: calls that come late, as those of a
// job that queues behind itself, have no identity left, and find their tick done.

// ticks is what is known of the ticks of a job.
type ticks struct {
	latest time.Time // the latest tick that has been due
	next   time.Time // the first that was not, when last looked: gocron may drop it from its list before its call
	looked time.Time // when that was, by the scheduler's clock,
	when   time.Time // and by the machine's monotonic one
}

// see finds the latest tick that is due by horizon among those that gocron lists, and what it knew before. It reports
// false if that is no other than before.
func (s *ticks) see(listed []time.Time, horizon time.Time) bool {
	if s.latest.After(horizon) { // the clock was set back, so that it is due no more
		s.latest = time.Time{}
	}
	before := s.latest
	for _, t := range append([]time.Time{s.next}, listed...) {
		if t.After(s.latest) && !t.After(horizon) {
			s.latest = t
		}
	}
	s.next = time.Time{}
	if i := slices.IndexFunc(listed, func(t time.Time) bool { return t.After(horizon) }); i >= 0 {
		s.next = listed[i]
	}
	return s.latest.After(before)
}

// early is how much before its tick a call still counts as the tick's: timers are not exact.
func early(period time.Duration) time.Duration { return min(period/10, time.Second) }

// due returns the tick that a call of gocron's own is for.
func (j *Job) due(ctx context.Context) (tick, error) {
	select {
	case <-j.ready: // gocron starts a job that runs immediately before it has told of it
	case <-ctx.Done():
		return tick{}, ctx.Err()
	}
	h, now, nodes := j.Handle(), j.cron.clock.Now(), j.cron.now()
	s := scheduleOf(h.Schedule())
	horizon := now
	if nodes.After(now) {
		horizon = nodes
	}
	listed, period, err := upcoming(h, &s, horizon)
	if err != nil {
		if ctx.Err() != nil {
			return tick{}, ctx.Err()
		}
		return tick{}, fmt.Errorf("%w: gocron did not tell its ticks: %w", ErrMissed, err)
	}
	if by := now.Add(early(period)); by.After(horizon) {
		horizon = by
	}
	j.mu.Lock()
	fired := j.ticks.expected(now)
	j.ticks.look(now)
	fresh := j.ticks.see(listed, horizon)
	if s.random {
		j.ticks.next = time.Time{} // what gocron adds to its list is drawn anew each time
	}
	at, next := j.ticks.latest, j.ticks.next
	j.mu.Unlock()
	t := s.tick(at, j.policy)
	t.period, t.next = period, next
	switch {
	case fresh:
		return t, nil
	case t.gap > 0:
		t := s.tick(nodes, j.policy) // the gap says whether it is time
		t.period, t.next = period, next
		return t, nil
	case !next.IsZero() && !next.After(fired.Add(early(period))):
		// The clock was set back, and the timer did not know. gocron will not call for this tick again.
		t = s.tick(next, j.policy)
		t.period = period
		j.pursue(t)
		return t, fmt.Errorf("%w: the clock was set back; it runs when it is due", ErrNotDue)
	case at.IsZero():
		return tick{}, fmt.Errorf("%w: the RunNow of gocron's own job counts as the tick that it falls on; that of Job does not", ErrNotDue)
	}
	return t, nil
}

// tick is that of an instant.
func (s *schedule) tick(at time.Time, p policy) tick {
	t := tick{at: at, id: stamp(at)}
	switch {
	case p.minGap > 0:
		t.gap = p.minGap
	case s.gap > 0:
		t.gap = s.gap
		if s.slot != nil {
			t.slot = s.slot(at)
		}
	case !s.shared(at):
		t.gap = p.grace
	}
	t.shared = t.gap == 0
	return t
}

// look notes when it is.
func (s *ticks) look(now time.Time) { s.looked, s.when = now, time.Now() }

// expected is the time that a timer takes it to be which was set when last looked: later than now, where the wall clock
// was set back.
func (s *ticks) expected(now time.Time) time.Time {
	if e := s.looked.Round(0).Add(time.Since(s.when)); e.After(now) {
		return e
	}
	return now
}

// upcoming asks gocron for the ticks of a job, sorted: those that are due by then and the next one, and the least time
// between ticks.
func upcoming(h gocron.Job, s *schedule, horizon time.Time) ([]time.Time, time.Duration, error) {
	for n := 8; ; n *= 8 {
		all, err := h.NextRuns(n)
		if err != nil {
			return nil, 0, err
		}
		last := len(all) < n || n > 1<<15
		all = slices.Clone(all)
		if i := slices.IndexFunc(all, time.Time.IsZero); i >= 0 { // there are no more; gocron starts over from the first
			all, last = all[:i], true
		}
		slices.SortFunc(all, time.Time.Compare) // a scheduler started again appends what it starts with
		if last || len(all) > 0 && all[len(all)-1].After(horizon.Add(time.Second)) {
			return all, periodOf(all, s), nil
		}
	}
}

// periodOf is the least time between ticks, as far as they are known.
func periodOf(all []time.Time, s *schedule) time.Duration {
	period := s.gap
	for i := 1; i < len(all); i++ {
		if d := all[i].Sub(all[i-1]); d > 0 && (period == 0 || d < period) {
			period = d
		}
	}
	if period == 0 {
		return 10 * time.Second // a single tick
	}
	return period
}
