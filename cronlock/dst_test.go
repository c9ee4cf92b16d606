package cronlock

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A change is an instant at which the clocks of a zone go forward or back by an hour.
type change struct {
	at      time.Time
	forward bool
}

// changes are those of the year 2000, in which bubbles begin.
func changes(t *testing.T, zone *time.Location) (all []change) {
	t.Helper()
	for at := midnight.In(zone); ; {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.Year() > 2000 {
			return all
		}
		_, before := end.Add(-1).Zone()
		if _, after := end.Zone(); after != before {
			all = append(all, change{end, after > before})
		}
		at = end
	}
}

// A time that clocks skip when they go forward is no tick, and one that they show twice when they go back is two.
func TestClocksGoForwardAndBack(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles", "America/Havana",
		"America/Sao_Paulo", "America/Santiago", "Africa/Cairo", "Asia/Beirut", "Australia/Sydney", "Pacific/Auckland"} {
		z := zone(t, name)
		both := changes(t, z)
		if len(both) != 2 || both[0].forward == both[1].forward {
			t.Errorf("%s: the clocks change at %v", name, both)
		}
		for _, c := range both {
			checkAcross(t, c, z)
		}
	}
}

// checkAcross checks a schedule of every day that is due half an hour after a change, or before it, by the clock as it was
// before.
func checkAcross(t *testing.T, c change, z *time.Location) {
	t.Helper()
	shown, want := c.at.Add(30*time.Minute), []time.Time(nil)
	if !c.forward {
		shown = c.at.Add(-30 * time.Minute)
		want = ticks(shown, time.Hour, 2)
	}
	_, offset := c.at.Add(-1).Zone()
	clock := shown.UTC().Add(time.Duration(offset) * time.Second)
	s := Crontab(fmt.Sprintf("%d %d * * *", clock.Minute(), clock.Hour()), z)
	if got := walk(s, c.at.Add(-45*time.Minute), c.at.Add(45*time.Minute)); !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("%v, forward %v: ticks %v, want %v", z, c.forward, got, want)
	}
}
