package schedule

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

var parser = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
		cron.Descriptor,
)

// Crontab returns the instants at which the clocks of a time zone match a cron expression. The expression has five
// fields, or six with the seconds first, or is a descriptor such as @daily, as robfig/cron reads them. When clocks go
// back, a time that they show twice is two instants. When they go forward, a time that they skip is none.
//
// The error names everything that is wrong. An expression that never falls due is an error, and so is an expression
// that names a time zone.
func Crontab(expression string, zone *time.Location) (NextFunc, error) {
	fields, err := parse(expression)
	if err := errors.Join(CheckZone(zone), err); err != nil {
		return nil, err
	}
	return crontab{fields, zone}.next, nil
}

// A crontab is a cron expression in a time zone.
type crontab struct {
	fields *cron.SpecSchedule // in UTC
	zone   *time.Location
}

const (
	day  = 24 * time.Hour
	year = 366 * day

	maxSegment = 4 * year  // longest time to search at once, because cron's search ends after five years
	maxSearch  = 30 * year // longest search; 29 February may be eight years away
)

// next returns the first instant after the given one. It searches each period with one offset from UTC separately,
// because cron fails at changes of the offset.
func (c crontab) next(after time.Time) time.Time {
	from := after.UTC().Add(1)
	end := from.Add(maxSearch)
	for from.Before(end) {
		offset, until := offsetAt(c.zone, from)

		// With this offset, the zone's clocks show the time that clocks in UTC show one offset later. Search the fields
		// there.
		shown := c.fields.Next(from.Add(offset).Add(-1))
		at := shown.Add(-offset)
		isFound := !shown.IsZero() && at.Before(until)
		if isFound {
			return at.In(after.Location())
		}
		from = until
	}
	return time.Time{}
}

// offsetAt returns the offset of a zone from UTC at an instant, and a later instant until which the offset does not
// change.
func offsetAt(zone *time.Location, from time.Time) (offset time.Duration, until time.Time) {
	local := from.In(zone)
	_, seconds := local.Zone()
	_, change := local.ZoneBounds()

	offset = time.Duration(seconds) * time.Second
	until = from.Add(maxSegment)
	switch {
	case change.IsZero():
		// The offset does not change any more.
	case !change.After(from):
		// ZoneBounds may count 365 days to a year. On the last day of a leap year, it then returns the start of that
		// day.
		until = from.Truncate(day).Add(day)
	case change.Before(until):
		until = change
	}
	return offset, until
}

// parse reads a cron expression, and sets its zone to UTC.
func parse(expression string) (*cron.SpecSchedule, error) {
	expression = strings.TrimSpace(expression)
	hasZone := strings.HasPrefix(expression, "TZ=") || strings.HasPrefix(expression, "CRON_TZ=")
	if hasZone {
		return nil, errors.New("it names a time zone: leave TZ= and CRON_TZ= out, " +
			"and pass the location beside the expression")
	}

	parsed, err := parser.Parse(expression)
	if err != nil {
		return nil, err
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("it counts from the start of the process, which differs between replicas: use Every")
	}

	fields.Location = time.UTC
	if !fallsDue(fields) {
		return nil, errors.New("it never falls due: no year has such a date and time")
	}
	return fields, nil
}

// fallsDue reports whether there is a date and a time that match all fields.
func fallsDue(fields *cron.SpecSchedule) bool {
	// A field without a value is only a comma, and cron would search every second of five years.
	values := []uint64{fields.Second, fields.Minute, fields.Hour, fields.Month}
	if slices.Contains(values, 0) {
		return false
	}

	// A leap year has every date.
	leapYear := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return !fields.Next(leapYear.Add(-1)).IsZero()
}
