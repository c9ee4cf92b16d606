package cronlock

import (
	"slices"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// A schedule is what a job's schedule says about the identity of its ticks.
type schedule struct {
	exact  bool          // the ticks of all replicas are the same instants
	gap    time.Duration // where they are not: the least time between two starts
	random bool          // its future ticks are not known
	only   []time.Time   // if not nil: the only ticks there are
	wall   bool          // its ticks lie on whole seconds
}

// scheduleOf reads a schedule of gocron's. Schedules by the wall clock are exact. Those that count from the
// moment the scheduler was started have another phase on each replica; so do those that skip days, weeks or
// months, for they count from the day of the start.
func scheduleOf(s gocron.JobSchedule) schedule {
	const day = 24 * time.Hour
	every := func(interval uint, unit time.Duration) schedule {
		if interval <= 1 {
			return schedule{exact: true, wall: true}
		}
		// The ticks of replicas are whole units apart; daylight saving moves them by an hour or so.
		return schedule{gap: time.Duration(interval)*unit - unit/2, wall: true}
	}
	switch s := s.(type) {
	case gocron.CronJobSchedule:
		spec := s.Crontab
		if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
			_, spec, _ = strings.Cut(spec, " ")
		}
		if text, ok := strings.CutPrefix(strings.TrimSpace(spec), "@every "); ok {
			if d, err := time.ParseDuration(strings.TrimSpace(text)); err == nil {
				return schedule{gap: gapOf(d)}
			}
		}
		return schedule{exact: true, wall: true}
	case gocron.DurationJobSchedule:
		return schedule{gap: gapOf(s.Duration)}
	case gocron.DurationRandomJobSchedule:
		return schedule{gap: gapOf(s.Min), random: true}
	case gocron.DailyJobSchedule:
		return every(s.Interval, day)
	case gocron.WeeklyJobSchedule:
		return every(s.Interval, 7*day)
	case gocron.MonthlyJobSchedule:
		return every(s.Interval, 28*day)
	case gocron.OneTimeJobSchedule:
		return schedule{exact: true, only: append([]time.Time{}, s.StartAt...)}
	}
	return schedule{exact: true}
}

// gapOf leaves room for timers and requests that are late on one tick and on time on the next.
func gapOf(interval time.Duration) time.Duration { return interval - min(interval/10, time.Second) }

// shared says whether tick is the same instant on all replicas. One that the scheduler made up when it was
// started (StartImmediately) is not.
func (s *schedule) shared(tick time.Time) bool {
	switch {
	case !s.exact:
		return false
	case s.only != nil:
		return slices.ContainsFunc(s.only, tick.Equal)
	}
	return !s.wall || tick.Nanosecond() == 0
}
