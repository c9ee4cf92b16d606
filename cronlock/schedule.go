package cronlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/internal/schedule"
)

// A Schedule names instants. It must name the same instants on all replicas, at any time. An invalid argument of
// Crontab, Every or At is an error of [Service.Add].
type Schedule interface {
	// Next returns the first instant after the given one, or the zero time if there is none.
	Next(after time.Time) time.Time
}

const year = 366 * 24 * time.Hour

// stamp returns the text for a tick in keys and errors.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// A scheduleFunc is a Schedule made of its method.
type scheduleFunc func(after time.Time) time.Time

func (f scheduleFunc) Next(after time.Time) time.Time { return f(after) }

// An invalidSchedule is the result of a constructor with invalid arguments. It has no instants.
type invalidSchedule struct{ error }

func (invalidSchedule) Next(time.Time) time.Time { return time.Time{} }

// Crontab returns the schedule of a cron expression in a time zone. The expression has five fields, or six with the
// seconds first, or is a descriptor such as @daily, as robfig/cron reads them. The schedule names each instant at which
// the clocks of the zone match the expression. When clocks go back, a time that they show twice is two ticks. When they
// go forward, a time that they skip is none.
//
// An expression that never falls due is an error. So is an expression that names a time zone (TZ=, CRON_TZ=) or begins
// with @every: use [Every]. The local time zone is an error, because it may differ between replicas.
func Crontab(expression string, in *time.Location) Schedule {
	next, err := schedule.Crontab(expression, in)
	if err != nil {
		return invalidSchedule{fmt.Errorf("crontab %q: %w", expression, err)}
	}
	return scheduleFunc(next)
}

// Every returns the schedule of all multiples of d since the beginning of 1970 in UTC, which are the same on every
// replica. It does not count from the start of a process or from the end of a run. The shortest period is a second.
func Every(d time.Duration) Schedule {
	next, err := schedule.Every(d)
	if err != nil {
		return invalidSchedule{fmt.Errorf("every %v: %w", d, err)}
	}
	return scheduleFunc(next)
}

// At returns the schedule of the given instants.
func At(instants ...time.Time) Schedule {
	if len(instants) == 0 || slices.ContainsFunc(instants, time.Time.IsZero) {
		return invalidSchedule{fmt.Errorf("at %v: there must be an instant, and none may be zero", instants)}
	}

	// The zero time at the end is the instant after the last one.
	sorted := append(slices.SortedFunc(slices.Values(instants), time.Time.Compare), time.Time{})
	return scheduleFunc(func(after time.Time) time.Time {
		next, _ := slices.BinarySearchFunc(sorted[:len(sorted)-1], after.Add(1), time.Time.Compare)
		return sorted[next]
	})
}

// checkSchedule returns an error if a few calls of Next show that the schedule is invalid.
func checkSchedule(s Schedule, now time.Time) error {
	if s == nil {
		return errors.New("the schedule is nil")
	}
	if f, ok := s.(invalidSchedule); ok {
		return f.error
	}

	first := s.Next(now)
	switch {
	case first.IsZero():
		return nil
	case !first.After(now):
		return fmt.Errorf("the schedule's Next returns %v after %v", first, now)
	}

	// A schedule that counts from the time of the call shows it here.
	middle := now.Add(first.Sub(now) / 2)
	if !s.Next(middle).Equal(first) {
		return errors.New("the schedule names other instants when it is asked at another time, " +
			"and so on another replica: use Every")
	}
	return nil
}

// latest returns the latest instant that is not after by, and the first one after it. Each is zero if there is none. It
// does not look for instants that are more than eight years old.
func latest(s Schedule, by time.Time) (at, next time.Time) {
	isDue := func(t time.Time) bool { return !t.IsZero() && !t.After(by) }

	// Go back in growing steps until an instant is found.
	for back := time.Second; back < 10*year && !isDue(at); back *= 4 {
		at = s.Next(by.Add(-back))
	}
	if !isDue(at) {
		return time.Time{}, s.Next(by).UTC()
	}

	// Search between at and end, in halves: no instant lies from end to by.
	end := by
	for next = s.Next(at); isDue(next) && next.After(at); next = s.Next(at) {
		at = next
		middle := at.Add(end.Sub(at) / 2)
		if t := s.Next(middle); isDue(t) {
			at = t
		} else {
			end = middle
		}
	}
	return at.UTC(), next.UTC()
}
