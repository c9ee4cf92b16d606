package cronlock

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// A schedule is what a job's schedule says about the identity of its ticks.
type schedule struct {
	exact  bool                        // the ticks of all replicas are the same instants
	gap    time.Duration               // where they are not: the least time between two starts
	slot   func(tick time.Time) string // if not nil: the gap is between ticks of the same slot
	random bool                        // its future ticks are not known
	only   []time.Time                 // if not nil: the only ticks there are
	wall   bool                        // its ticks lie on whole seconds
}

// scheduleOf reads a schedule of gocron's. Schedules by the wall clock are exact. Those that count from the
// moment the scheduler was started have another phase on each replica; so do those that skip days, weeks or
// months, for they count from the day of the start.
func scheduleOf(s gocron.JobSchedule) schedule {
	const day = 24 * time.Hour
	every := func(interval uint, unit time.Duration, slot func(time.Time) string) schedule {
		if interval <= 1 {
			return schedule{exact: true, wall: true}
		}
		// The ticks of a slot on different replicas are whole units apart; daylight saving moves them by an hour.
		return schedule{gap: time.Duration(interval)*unit - unit/2, wall: true, slot: slot}
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
		return every(s.Interval, day, func(tick time.Time) string { return slotOf(tick, s.AtTimes) })
	case gocron.WeeklyJobSchedule:
		return every(s.Interval, 7*day, func(tick time.Time) string {
			return tick.Weekday().String() + "/" + slotOf(tick, s.AtTimes)
		})
	case gocron.MonthlyJobSchedule:
		return every(s.Interval, 365*day/12, func(tick time.Time) string {
			return strconv.Itoa(dayOf(tick, s.Days)) + "/" + slotOf(tick, s.AtTimes)
		})
	case gocron.OneTimeJobSchedule:
		return schedule{exact: true, only: append([]time.Time{}, s.StartAt...)}
	}
	return schedule{exact: true}
}

// slotOf tells apart the ticks of a day. One that daylight saving has moved falls between the same two times.
func slotOf(tick time.Time, at []time.Time) string {
	clock := func(t time.Time) time.Duration {
		h, m, s := t.Clock()
		return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second
	}
	n := 0
	for _, t := range at {
		if clock(t) <= clock(tick) {
			n++
		}
	}
	return strconv.Itoa(n)
}

// dayOf is the day of the month as the schedule names it: counted from the end if it is not one of days.
func dayOf(tick time.Time, days []int) int {
	if slices.Contains(days, tick.Day()) {
		return tick.Day()
	}
	return tick.Day() - 1 - time.Date(tick.Year(), tick.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
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
