package cronlock

import (
	"slices"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// gocron does not say for which tick it calls Lock, nor whether for a tick at all: RunNow calls it, too. But
// each tick that falls due brings one call. So the due ticks are counted against the calls: a call that a
// due tick accounts for is that of the latest one, as late calls (a job that queues behind itself) have no
// identity left; any other is a manual run.

// calls does that accounting for one job.
type calls struct {
	counted          []time.Time // ticks accounted for that gocron still lists as due
	latest           time.Time   // the latest tick that has fallen due
	next             time.Time   // the first that had not when last seen: gocron may drop it from its list before its call
	downFrom, downTo time.Time   // between these, the scheduler was stopped
	owed             int         // calls that ticks have yet to bring
	reruns           int         // calls that our own RunNow has yet to bring
	drops            bool        // gocron drops calls while a run goes on (singleton mode Reschedule), instead of queueing them
}

// A call is what a call of Lock stands for.
type call uint8

const (
	callTick call = iota
	callManual
	callRerun // that of an own RunNow
)

// stale is how long calls may be owed while no job of the scheduler runs: a scheduler-wide limit drops calls, too,
// and until then a manual run is taken for one of them. Much less would take a queued call for a manual run
// when the process is paused in between, and run a tick twice.
const stale = time.Minute

// see counts the ticks that gocron lists as due by horizon, and remembers the next one. For so long as quiet, no
// job of the scheduler has run, so that no call waits behind one.
func (c *calls) see(due []time.Time, next, horizon time.Time, quiet time.Duration) {
	if c.drops {
		c.owed = 0
	}
	if quiet > stale {
		c.owed, c.reruns = 0, 0
	}
	if !c.next.IsZero() && !c.next.After(horizon) && !slices.ContainsFunc(due, c.next.Equal) {
		due = append([]time.Time{c.next}, due...)
	}
	counted := slices.Clone(due)
	for _, t := range c.counted {
		if t.After(horizon) { // the clock was set back
			counted = append(counted, t)
		}
	}
	for i, t := range due {
		again := func(o []time.Time) bool { return slices.ContainsFunc(o, t.Equal) }
		if again(c.counted) || again(due[:i]) || t.After(c.downFrom) && t.Before(c.downTo) {
			continue
		}
		c.owed++
		if t.After(c.latest) {
			c.latest = t
		}
	}
	if c.drops {
		c.owed = min(c.owed, 1)
	}
	c.counted, c.next = counted, next
}

// take says what this call is for. One that finds a run handed over takes it, whatever it was for: the call
// that was to bring it will then stand for this one.
func (c *calls) take(handedOver bool) (call, time.Time) {
	switch {
	case handedOver, c.owed == 0 && c.reruns > 0:
		c.reruns = max(c.reruns-1, 0)
		return callRerun, time.Time{}
	case c.owed > 0:
		c.owed--
		return callTick, c.latest
	}
	return callManual, time.Time{}
}

// stopped and started: the scheduler has. The tick that was next stays on gocron's list, and if it fell due in
// between, no call comes. What was under way at the stop may still come, and the start is told a little late.
func (c *calls) stopped(now time.Time) { c.downFrom, c.downTo = now, time.Time{} }
func (c *calls) started(now time.Time) { c.downTo = now.Add(-time.Second) }

// reckon is the time by which ticks are due: now, or later where the wall clock was set back in the time elapsed
// since then, because timers that were set before do not know of it.
func reckon(then time.Time, elapsed time.Duration, now time.Time) time.Time {
	if expected := then.Round(0).Add(elapsed); !then.IsZero() && expected.After(now) {
		return expected
	}
	return now
}

// early is how much before a tick a call still counts as its own: a wall clock that was slowed down since the
// timer was set makes it fire early. A manual run so short before a tick is taken for the tick.
func early(period time.Duration) time.Duration { return min(period/10, time.Minute) }

// ticks asks gocron for the ticks of a job: those due at now or so shortly after that a call may already be
// theirs, the next one, and the time between ticks.
func ticks(h gocron.Job, s *schedule, now time.Time) (due []time.Time, next time.Time, period time.Duration, err error) {
	for n := 8; ; n *= 8 {
		all, err := h.NextRuns(n)
		if err != nil {
			return nil, time.Time{}, 0, err
		}
		last := len(all) < n || n > 1<<15
		all = slices.Clone(all)
		if i := slices.IndexFunc(all, time.Time.IsZero); i >= 0 { // there are no more; gocron starts over from the first
			all, last = all[:i], true
		}
		slices.SortFunc(all, time.Time.Compare) // a scheduler started again appends what it starts with
		period = periodOf(all, s)
		i := slices.IndexFunc(all, func(t time.Time) bool { return t.After(now.Add(early(period))) })
		switch {
		case i >= 0 && s.random: // what gocron adds to its list is drawn anew each time
			return all[:i], time.Time{}, period, nil
		case i >= 0:
			return all[:i], all[i], period, nil
		case last:
			return all, time.Time{}, period, nil
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
