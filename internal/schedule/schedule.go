// Package schedule computes the instants of cron expressions and of periods. They are the same in every process, at any
// time.
package schedule

import (
	"errors"
	"time"
)

// A NextFunc returns the first instant after the given one, or the zero time if there is none within 30 years.
type NextFunc func(after time.Time) time.Time

var epoch = time.Unix(0, 0).UTC()

// Every returns the multiples of d since the beginning of 1970 in UTC. The shortest period is a second.
func Every(d time.Duration) (NextFunc, error) {
	if d < time.Second {
		return nil, errors.New("the period must be at least a second")
	}

	// Truncate counts from the year 1: shift its result to multiples since 1970.
	shift := epoch.Sub(epoch.Truncate(d))
	return func(after time.Time) time.Time {
		return after.UTC().Add(-shift).Truncate(d).Add(shift).Add(d)
	}, nil
}

// CheckZone returns an error if the time zone is missing or may differ between processes.
func CheckZone(zone *time.Location) error {
	switch {
	case zone == nil:
		return errors.New("the location is nil, so there is no time zone: pass time.UTC or one of time.LoadLocation")
	case zone == time.Local || zone.String() == "Local":
		// time.Local may have another name.
		return errors.New("the local time zone may differ between replicas: pass time.UTC or one of time.LoadLocation")
	}
	return nil
}
