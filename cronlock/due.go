package cronlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/cronlock/tick"
)

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
func (j *Job) due(ctx context.Context) (tick.Tick, error) {
	select {
	case <-j.isReady(): // gocron starts a job that runs immediately before it has told of it
	case <-ctx.Done():
		return tick.Tick{}, ctx.Err()
	}
	h, now, nodes := j.Handle(), j.cron.clock.Now(), j.cron.service.Now()
	s := scheduleOf(h.Schedule())
	horizon := now
	if nodes.After(now) {
		horizon = nodes
	}
	listed, period, err := upcoming(h, &s, horizon)
	if err != nil {
		if ctx.Err() != nil {
			return tick.Tick{}, ctx.Err()
		}
		return tick.Tick{}, fmt.Errorf("%w: gocron did not tell its ticks: %w", ErrMissed, err)
	}
	horizon = horizon.Add(early(period))
	j.mu.Lock()
	fired := j.ticks.expected(now)
	j.ticks.look(now)
	fresh := j.ticks.see(listed, horizon)
	if s.random {
		j.ticks.next = time.Time{} // what gocron adds to its list is drawn anew each time
	}
	at, next := j.ticks.latest, j.ticks.next
	j.mu.Unlock()
	switch {
	case fresh:
	case j.gapped, s.gap > 0, !s.shared(at):
		at = nodes // the gap says whether it is time
	case !next.IsZero() && !next.After(fired.Add(early(period))):
		// The clock was set back, and the timer did not know. gocron will not call for this tick again.
		j.Pursue(s.tick(next, period, time.Time{}))
		return tick.Tick{At: next}, fmt.Errorf("%w: the clock was set back; it runs when it is due", ErrNotDue)
	case at.IsZero():
		return tick.Tick{}, fmt.Errorf("%w: the RunNow of gocron's own job counts as the tick that it falls on; that of Job does not", ErrNotDue)
	}
	return s.tick(at, period, next), nil
}

// tick is that of an instant.
func (s *schedule) tick(at time.Time, period time.Duration, next time.Time) tick.Tick {
	t := tick.Tick{At: at, Exact: s.shared(at), Gap: s.gap, Period: period, Next: next}
	if s.slot != nil {
		t.Slot = s.slot(at)
	}
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

// An instantsOf is the schedule of a job, for the ticks that gocron does not tell: those of the past.
type instantsOf struct{ j *Job }

// Next returns the zero time where the schedule's ticks are not the same instants on all replicas.
func (s instantsOf) Next(after time.Time) time.Time {
	select {
	case <-s.j.isReady():
	case <-s.j.cron.closing.Done():
		return time.Time{}
	}
	h := s.j.Handle()
	if h == nil {
		return time.Time{}
	}
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	if s.j.instants == nil {
		coming, err := h.NextRun()
		if err != nil || coming.IsZero() { // the scheduler has not started, or has stopped: its location is not known
			return time.Time{}
		}
		s.j.instants = s.j.within(instants(h.Schedule(), coming.Location()))
	}
	return s.j.instants(after)
}

// within keeps to the bounds that gocron's options and Update set.
func (j *Job) within(next func(time.Time) time.Time) func(time.Time) time.Time {
	t, updated := traitsOf(j.options), j.updated
	return func(after time.Time) (at time.Time) {
		if next == nil || t.custom {
			return at
		}
		if after.Before(t.start) {
			after = t.start.Add(-1)
		}
		if after.Before(updated) {
			after = updated
		}
		if at = next(after); !t.stop.IsZero() && !at.Before(t.stop) {
			return time.Time{}
		}
		return at
	}
}
