// Package schedule finds the instants that cron expressions and periods name. The instants are the same in every process,
// whenever it asks.
package schedule

import (
	"errors"
	"time"
)

// A Next returns the first instant after the given one, or the zero time if there is none within 30 years.
type Next func(after time.Time) time.Time

var epoch = time.Unix(0, 0).UTC()

// Every names the multiples of d since the beginning of 1970 in UTC. The shortest period is a second.
func Every(d time.Duration) (Next, error) {
	if d < time.Second {
		return nil, errors.New("the period must be at least a second")
	}
	first := epoch.Sub(epoch.Truncate(d)) // Truncate counts from the year 1
	return func(after time.Time) time.Time {
		return after.UTC().Add(-first).Truncate(d).Add(first).Add(d)
	}, nil
}

// CheckZone returns an error if processes may not agree on what the clocks of a time zone show.
func CheckZone(in *time.Location) error {
	switch {
	case in == nil:
		return errors.New("the location is nil, so there is no time zone: pass time.UTC or one of time.LoadLocation")
	case in == time.Local || in.String() == "Local": // time.Local may also have the name of a zone
		return errors.New("the local time zone may differ between replicas: pass time.UTC or one of time.LoadLocation")
	}
	return nil
}
