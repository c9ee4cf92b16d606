package cronlock

import (
	"slices"
	"strings"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"
)

// gocron tells the ticks to come only. What follows finds those of the past, from the schedule alone.

// instants returns the function that gives the first tick of a schedule after an instant (zero: none), for schedules
// whose ticks are the same instants on all replicas; nil for others. The scheduler's location is in.
//
// On a day on which clocks change, it leaves out wall times of a daily, weekly or monthly schedule that do not exist or
// exist twice. What gocron makes of the former depends on an option that cannot be read, and time.Date does not say
// which of two instants it takes: a tick must not get a second identity. Of a cron schedule it gives the ticks of a
// scheduler that was started before the change.
func instants(s gocron.JobSchedule, in *time.Location) func(after time.Time) time.Time {
	switch s := s.(type) {
	case gocron.CronJobSchedule:
		return cronInstants(s.Crontab, in)
	case gocron.DailyJobSchedule:
		return wallInstants(s.Interval, s.AtTimes, in, func(time.Time) bool { return true })
	case gocron.WeeklyJobSchedule:
		return wallInstants(s.Interval, s.AtTimes, in, func(day time.Time) bool {
			return slices.Contains(s.DaysOfWeek, day.Weekday())
		})
	case gocron.MonthlyJobSchedule:
		return wallInstants(s.Interval, s.AtTimes, in, func(day time.Time) bool {
			n := dayOf(day, s.Days)
			return n > 0 || slices.Contains(s.DaysFromEnd, n)
		})
	case gocron.OneTimeJobSchedule:
		return func(after time.Time) (first time.Time) {
			for _, t := range s.StartAt {
				if t.After(after) && (first.IsZero() || t.Before(first)) {
					first = t
				}
			}
			return first
		}
	}
	return nil
}

// cronInstants reads a crontab as gocron does. Its parser takes seconds if they are there: gocron has refused those
// that it was not told of.
func cronInstants(tab string, in *time.Location) func(after time.Time) time.Time {
	if !strings.HasPrefix(tab, "TZ=") && !strings.HasPrefix(tab, "CRON_TZ=") {
		tab = "CRON_TZ=" + in.String() + " " + tab
	}
	if !strings.Contains(tab, " ") {
		return nil // a location alone: the parser would panic
	}
	parsed, err := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(tab)
	spec, ok := parsed.(*cron.SpecSchedule) // "@every" counts from the start of the process, and is none
	if err != nil || !ok {
		return nil
	}
	return func(after time.Time) time.Time {
		next := spec.Next(after.In(in))
		if repeats(spec, next) {
			return spec.Next(next)
		}
		return next
	}
}

// repeats reports whether the scheduler's clocks show the same at a tick as at the one before, since they were put back.
// gocron leaves such a tick out, unless it was started between the two and knows of none before.
func repeats(spec *cron.SpecSchedule, tick time.Time) bool {
	_, offset := tick.Zone()
	_, before := tick.AddDate(0, 0, -1).Zone()
	first := tick.Add(time.Duration(offset-before) * time.Second)
	_, shown := first.Zone()
	return before > offset && shown == before && spec.Next(first.Add(-time.Second)).Equal(first) && spec.Next(first).Equal(tick)
}

// wallInstants is for what is due at some times of each day of which due says so.
func wallInstants(interval uint, at []time.Time, in *time.Location, due func(day time.Time) bool) func(after time.Time) time.Time {
	if interval > 1 {
		return nil // counted from the start of the process
	}
	return func(after time.Time) time.Time {
		year, month, first := after.In(in).Date()
		for n := range 366 { // at least one is due, if any ever is
			day := time.Date(year, month, first+n, 0, 0, 0, 0, time.UTC)
			if !due(day) {
				continue
			}
			for _, t := range at { // gocron has sorted them
				if tick := instantOf(day, t, in); tick.After(after) {
					return tick
				}
			}
		}
		return time.Time{}
	}
}

// instantOf is when the clocks show that time of the day; zero if they never do, or twice.
func instantOf(day, at time.Time, in *time.Location) time.Time {
	hour, minute, second := at.Clock()
	wall := time.Date(day.Year(), day.Month(), day.Day(), hour, minute, second, 0, time.UTC)
	read := func(beside time.Time) (t time.Time, ok bool) { // with the offset of then
		_, offset := beside.In(in).Zone()
		t = wall.Add(-time.Duration(offset) * time.Second).In(in)
		_, shown := t.Zone()
		return t, shown == offset
	}
	before, early := read(wall.AddDate(0, 0, -1))
	after, late := read(wall.AddDate(0, 0, 1))
	switch {
	case early && late && before.Equal(after), early && !late:
		return before
	case late && !early:
		return after
	}
	return time.Time{}
}
