package cronlock

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// A schedule that may have different instants on different replicas is refused with a reason. All others are accepted.
func TestSchedulesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		schedule Schedule
		word     string
	}{
		"nil":            {nil, "is nil"},
		"no crontab":     {Crontab("61 * * * *", time.UTC), "above maximum"},
		"an interval":    {Crontab("@every 90s", time.UTC), "use Every"},
		"no zone":        {Crontab("0 3 * * *", nil), "no time zone"},
		"a zone within":  {Crontab("CRON_TZ=Asia/Tokyo 0 3 * * *", time.UTC), "names a time zone"},
		"no fields":      {Crontab("CRON_TZ=Asia/Tokyo", time.UTC), "names a time zone"},
		"an empty zone":  {Crontab("CRON_TZ= 0 3 * * *", time.UTC), "names a time zone"},
		"the local zone": {Crontab("0 3 * * *", time.Local), "may differ between replicas"},
		"never":          {Crontab("0 3 30 2 *", time.UTC), "never falls due"},
		"no period":      {Every(0), "at least a second"},
		"a short period": {Every(999 * time.Millisecond), "at least a second"},
		"no instants":    {At(), "must be an instant"},
		"a zero instant": {At(time.Time{}), "none may be zero"},
		"from when it is asked": {scheduleFunc(func(after time.Time) time.Time { return after.Add(time.Minute) }),
			"other instants when it is asked at another time"},
		"the past":    {scheduleFunc(func(after time.Time) time.Time { return after.Add(-time.Minute) }), "returns"},
		"five fields": {Crontab("0 3 * * *", time.UTC), ""},
		"six fields":  {Crontab("30 0 3 * * *", zone(t, "Europe/Berlin")), ""},
		"descriptor":  {Crontab("@daily", time.UTC), ""},
		"period":      {Every(7 * time.Minute), ""},
		"all past":    {At(time.Unix(1, 0), time.Unix(0, 0)), ""},
	} {
		if err := checkSchedule(c.schedule, time.Now()); (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want a word about %q", name, err, c.word)
		}
	}

	if os.Getenv("LOCKKIT_AGAIN") != "" {
		return
	}
	for _, zone := range []string{"UTC", "Europe/Berlin"} { // the same again, with this local time zone
		again := exec.Command(os.Args[0], "-test.run=^TestSchedulesRefused$")
		again.Env = append(os.Environ(), "LOCKKIT_AGAIN=yes", "TZ="+zone)
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("where the local zone is %s: %v\n%s", zone, err, out)
		}
	}
}

// latest finds the same instants as a walk through the whole schedule, also in zones in which clocks go forward and
// back.
func TestLatestIsWhatAWalkFinds(t *testing.T) {
	race.SkipSweep(t)
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "America/Sao_Paulo", "America/Havana",
		"Asia/Beirut", "America/Santiago", "Europe/Dublin", "Asia/Kathmandu"}
	from := time.Date(2024, 2, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(1, 0, 0)
	for _, name := range zones {
		for _, tab := range []string{"30 1 * * *", "30 2 * * *", "0 0 * * *", "*/15 * * * *", "0 0 1 * *"} {
			s, step := Crontab(tab, zone(t, name)), 13*time.Hour+7*time.Minute
			if tab == "*/15 * * * *" {
				step *= 7
			}
			all := walk(s, from.AddDate(0, -2, 0), to)
			for by := from; by.Before(to); by = by.Add(step) {
				wantLatest(t, s, all, by)
			}
		}
	}
}

// walk returns all instants of a schedule after from and before to.
func walk(s Schedule, from, to time.Time) (all []time.Time) {
	for at := s.Next(from); at.Before(to); at = s.Next(at) {
		all = append(all, at)
	}
	return all
}

// wantLatest checks the latest instant by a given time, and the instants after and before it.
func wantLatest(t *testing.T, s Schedule, all []time.Time, by time.Time) {
	t.Helper()
	i, found := slices.BinarySearchFunc(all, by, time.Time.Compare)
	if !found {
		i--
	}
	if got, next := latest(s, by); !got.Equal(all[i]) || i+1 < len(all) && !next.Equal(all[i+1]) {
		t.Errorf("%v: the latest by %v is %v, next %v; a walk finds %v", s, by, got, next, all[i])
	}
	if got := before(s, all[i]); i > 0 && !got.Equal(all[i-1]) {
		t.Errorf("%v: before %v is %v, a walk finds %v", s, all[i], got, all[i-1])
	}
}

func TestLatest(t *testing.T) {
	now := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		schedule   Schedule
		at, before string
	}{
		"period":      {Every(7 * time.Hour), "2024-02-29T07:00:00Z", "2024-02-29T00:00:00Z"},
		"just now":    {Every(time.Hour), "2024-02-29T12:00:00Z", "2024-02-29T11:00:00Z"},
		"leap years":  {Crontab("0 0 29 2 *", time.UTC), "2024-02-29T00:00:00Z", "2020-02-29T00:00:00Z"},
		"one instant": {At(now.Add(-time.Hour)), "2024-02-29T11:00:00Z", "0001-01-01T00:00:00Z"},
		"none yet":    {At(now.Add(time.Hour)), "0001-01-01T00:00:00Z", ""},
	} {
		at, _ := latest(c.schedule, now)
		if stamp(at) != c.at || c.before != "" && stamp(before(c.schedule, at)) != c.before {
			t.Errorf("%s: the latest is %s, and before it %s; want %s, %s", name, stamp(at), stamp(before(c.schedule, at)), c.at, c.before)
		}
	}
}

// A time that clocks skip when they go forward is no tick. A time that they show twice when they go back is two ticks.
// The clocks of each zone change twice in 2000. The schedule falls due half an hour into the time that is skipped or
// shown twice.
func TestClocksGoForwardAndBack(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles", "America/Havana",
		"America/Sao_Paulo", "America/Santiago", "Africa/Cairo", "Asia/Beirut", "Australia/Sydney", "Pacific/Auckland"} {
		z := zone(t, name)
		for end, n := midnight.In(z), 0; n < 2; n++ {
			_, end = end.ZoneBounds()
			_, before := end.Add(-1).Zone()
			shown, want := end.Add(30*time.Minute), 0
			if _, after := end.Zone(); after < before {
				shown, want = end.Add(-30*time.Minute), 2
			}

			clock := shown.UTC().Add(time.Duration(before) * time.Second)
			s := Crontab(fmt.Sprintf("%d %d * * *", clock.Minute(), clock.Hour()), z)
			got := walk(s, end.Add(-45*time.Minute), end.Add(45*time.Minute))
			if end.Year() != 2000 || len(got) != want || want > 0 && !slices.EqualFunc(got, ticks(shown, time.Hour, 2), time.Time.Equal) {
				t.Errorf("%s: ticks %v about %v", name, got, end)
			}
		}
	}
}
