package tick

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// What nobody started when it fell due, for want of a replica, of a leader or of nodes, is found by the schedule, and
// caught up as far as the job's policy wants that.

const (
	// mostCaughtUp are the ticks that are caught up where the policy does not say how many.
	mostCaughtUp = 100
	// mostRerun are the ticks past the misfire grace that are looked at: they may have been started, and not completed.
	mostRerun = 10
)

// missed returns the ticks that nobody may have run, in their order. It reports false where the job is new, and the host may
// not have begun with its schedule.
func (j *Job) missed() (ticks []tick, known bool) {
	p, now := j.policy, j.service.Now()
	if p.next == nil || p.catchUp == 0 {
		return nil, true
	}
	most, since := p.catchUp, now.Add(-p.grace)
	if p.next(since).IsZero() {
		return nil, now.Sub(j.added) > p.grace
	}
	if p.attempts > 1 {
		period := p.next(p.next(now)).Sub(p.next(now))
		again := now.Add(-j.rerunnable(tick{Tick: Tick{Period: period}}))
		ticks = j.between(again, since, mostRerun) // they may have been started
	}
	if most < 0 {
		most = mostCaughtUp
	}
	return append(ticks, j.between(since, now, most)...), true
}

// between returns the latest n ticks after one instant and until another, in their order. What fell due before the job was
// added is only of interest if the policy says so.
func (j *Job) between(after, until time.Time, n int) (ticks []tick) {
	if j.policy.catchUp < 0 && after.Before(j.added) {
		after = j.added
	}
	j.mu.Lock()
	if after.Before(j.bare) { // which is recorded nowhere
		after = j.bare
	}
	j.mu.Unlock()
	for _, at := range j.policy.instants(after, until, n) {
		t := newTick(j.policy.tickAt(at), j.policy)
		t.late = true
		ticks = append(ticks, t)
	}
	return ticks
}

// instants returns the latest n that the schedule names after one instant and until another, in their order.
func (p *policy) instants(after, until time.Time, n int) (all []time.Time) {
	for at := p.next(after); !at.IsZero() && !at.After(until); at = p.next(at) {
		all = last(n, append(all, at))
	}
	return all
}

// tickAt is the tick of an instant that the schedule names.
func (p *policy) tickAt(at time.Time) Tick {
	next := p.next(at)
	return Tick{At: at, Exact: true, Next: next, Period: max(next.Sub(at), 0)}
}

// Due returns the tick that [Job.RunDue] would run, for a host that claims it, or has another process run it. It reports
// false where the schedule ([WithSchedule]) is not known, or has had no tick. A tick counts as due already when it will be
// within the time by which timers are early: a tenth of the period, and at most a second.
func (j *Job) Due() (Tick, bool) {
	next := j.policy.next
	if next == nil {
		return Tick{}, false
	}
	by := j.service.clock() // or the nodes', whichever is ahead
	if nodes := j.service.Now(); nodes.After(by) {
		by = nodes
	}
	for back := time.Minute; back < 10*365*24*time.Hour; back *= 4 {
		at := next(by.Add(-back))
		if at.IsZero() || at.After(by) {
			continue
		}
		for {
			t := j.policy.tickAt(at)
			if t.Next.IsZero() || t.Next.After(by.Add(min(t.Period/10, time.Second))) {
				return t, true
			}
			at = t.Next
		}
	}
	return Tick{}, false
}

func last[T any](n int, of []T) []T { return of[max(0, len(of)-n):] }

// cutOff reports whether this replica cannot reach the nodes. It looks at a key that nobody has.
func (s *Service) cutOff() bool {
	_, err := s.locker.Inspect(s.closing, core.Key("cron", s.name, "reach"))
	return outage(err)
}

// look is how often a replica looks whether there is something to catch up, which asks nobody.
const look = 200 * time.Millisecond

// owe notes that there may be ticks to catch up.
func (j *Job) owe() {
	j.owing.Store(true)
	select {
	case j.service.owed <- struct{}{}:
	default: // it is noted already
	}
}

// oweAt is owe for a tick that may not be due yet, by the nodes' clocks.
func (j *Job) oweAt(at time.Time) {
	early := at.Sub(j.service.Now())
	if early > j.service.clockLimit { // it will be refused then, too
		return
	}
	j.service.gate.Go(func() {
		if pause.For(j.gone, early) {
			j.owe()
		}
	})
}

// catchUp has this replica run what was missed, if it may: when it has become leader, and what is owed.
func (s *Service) catchUp() {
	again := false
	for term := uint64(0); s.awaitOwed(again); {
		again = false
		now, leads := s.term()
		if !leads {
			continue
		}
		jobs := slices.DeleteFunc(s.all(), func(j *Job) bool { return !j.owing.Swap(false) && now == term })
		if len(jobs) > 0 && s.cutOff() {
			for _, j := range jobs {
				j.owing.Store(true)
			}
			again = true
			continue
		}
		for _, j := range jobs {
			ticks, known := j.missed()
			j.pursue(ticks...)
			if !known {
				j.owing.Store(true)
				again = true
			}
		}
		term = now
	}
}

// awaitOwed waits until something is owed or, with an elector, until it is time to look who leads. It reports false once the
// Service is closed.
func (s *Service) awaitOwed(again bool) bool {
	if s.elector != nil || again {
		return pause.For(s.closing, look)
	}
	select {
	case <-s.owed:
		return true
	case <-s.closing.Done():
		return false
	}
}
