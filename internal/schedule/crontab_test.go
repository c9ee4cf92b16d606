package schedule

import (
	"archive/zip"
	"io/fs"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

// tabs has expressions, and functions that report whether clocks show the time of the expression. All minutes are
// quarters of an hour.
var tabs = map[string]func(date, weekday, clock) bool{
	"0 0 * * *":    func(_ date, _ weekday, c clock) bool { return c == 0 },
	"@daily":       func(_ date, _ weekday, c clock) bool { return c == 0 },
	"@hourly":      func(_ date, _ weekday, c clock) bool { return c%60 == 0 },
	"*/15 * * * *": func(date, weekday, clock) bool { return true },
	"15 * * * *":   func(_ date, _ weekday, c clock) bool { return c%60 == 15 },
	"30 2 * * *":   func(_ date, _ weekday, c clock) bool { return c == 2*60+30 },
	"0 30 0,1,3,23 * * *": func(_ date, _ weekday, c clock) bool {
		return c%60 == 30 && (c/60 <= 1 || c/60 == 3 || c/60 == 23)
	},
	"0 6 * * fri":      func(_ date, w weekday, c clock) bool { return w == time.Friday && c == 6*60 },
	"15 4 * * sun":     func(_ date, w weekday, c clock) bool { return w == time.Sunday && c == 4*60+15 },
	"45 5 * * sat":     func(_ date, w weekday, c clock) bool { return w == time.Saturday && c == 5*60+45 },
	"0 0 * * mon":      func(_ date, w weekday, c clock) bool { return w == time.Monday && c == 0 },
	"15 1 * * tue-thu": func(_ date, w weekday, c clock) bool { return w >= time.Tuesday && w <= time.Thursday && c == 60+15 },
	"0 12 1 * *":       func(d date, _ weekday, c clock) bool { return d.day == 1 && c == 12*60 },
	"0 6 31 dec *":     func(d date, _ weekday, c clock) bool { return d.month == time.December && d.day == 31 && c == 6*60 },
	"30 3 29 2 *":      func(d date, _ weekday, c clock) bool { return d.month == time.February && d.day == 29 && c == 3*60+30 },
	"0 2 1-7 3,10 sun": func(d date, w weekday, c clock) bool { // on a day that either field matches
		return (d.month == time.March || d.month == time.October) && (d.day <= 7 || w == time.Sunday) && c == 2*60
	},
}

type (
	date struct {
		month time.Month
		day   int
	}
	weekday = time.Weekday
	clock   int // minutes since midnight
)

const quarter = 15 * time.Minute

// An expression names each instant at which the clocks of its zone show its time, and no other instant, whenever it is
// asked. The clocks of these zones change at midnight, by half an hour or two hours, four times a year, or by a day.
func TestNamesWhatClocksShow(t *testing.T) {
	for _, z := range zones(t, "UTC", "Africa/Cairo", "Africa/Casablanca", "America/Havana", "America/Santiago", "Antarctica/Troll",
		"Asia/Beirut", "Asia/Kathmandu", "Atlantic/Azores", "Australia/Lord_Howe", "Europe/Berlin", "Europe/Dublin", "Pacific/Chatham") {
		aroundChanges(t, z, 2026, 2029)
	}
	for _, z := range zones(t, "Pacific/Apia") { // it had no 30 December in 2011
		aroundChanges(t, z, 2011, 2011)
	}
}

// The same rule holds in all zones.
func TestNamesWhatClocksShowAnywhere(t *testing.T) {
	race.SkipSweep(t)
	all := zones(t)
	if len(all) < 300 {
		t.Fatalf("%d zones", len(all))
	}

	// Three leap years and the years between them, or one leap year in short runs.
	first, last := 2024, 2032
	if testing.Short() {
		first, last = 2027, 2028
	}
	for _, z := range all {
		aroundChanges(t, z, first, last)
	}
}

// aroundChanges compares all expressions with the clocks of a zone, in the days around each change of their offset and
// around the end of each leap year.
func aroundChanges(t *testing.T, z *time.Location, first, last int) {
	t.Helper()
	at := time.Date(first, 1, 1, 0, 0, 0, 0, time.UTC)
	end := time.Date(last+1, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, before := at.In(z).Zone(); at.Before(end); at = at.Add(day) {
		_, offset := at.In(z).Zone()
		if offset != before || at.YearDay() == 366 {
			compare(t, z, at.Add(-2*day), at.Add(2*day))
		}
		before = offset
	}
}

// compare compares all expressions with the clocks of a zone between two instants.
func compare(t *testing.T, z *time.Location, from, to time.Time) {
	t.Helper()
	shown := map[string][]time.Time{}
	for at := from.Add(quarter); at.Before(to); at = at.Add(quarter) {
		local := at.In(z)
		_, month, day := local.Date()
		hour, minute, second := local.Clock()
		if second != 0 || minute%15 != 0 {
			t.Fatalf("%v: clocks show %v at a full quarter of an hour in UTC", z, local)
		}
		for tab, shows := range tabs {
			if shows(date{month, day}, local.Weekday(), clock(hour*60+minute)) {
				shown[tab] = append(shown[tab], at)
			}
		}
	}

	rng := rand.New(rand.NewPCG(uint64(from.Unix()), 0))
	for tab := range tabs {
		next, asked := must(Crontab(tab, z)), from
		for _, want := range shown[tab] {
			between := asked.Add(time.Duration(rng.Int64N(int64(want.Sub(asked)))))
			for _, after := range []time.Time{asked, between} {
				if got := next(after); !got.Equal(want) {
					t.Fatalf("%v, %q: %v after %v; the clocks show %v", z, tab, got.In(z), after.In(z), want.In(z))
				}
			}
			asked = want
		}
		if got := next(asked); got.Before(to) {
			t.Fatalf("%v, %q: %v after %v; the clocks do not show it", z, tab, got.In(z), asked.In(z))
		}
	}
}

// The offset of a zone's clocks may have seconds, as Liberia's had until 1972. A minute begins when the clocks show it.
func TestOffsetsWithSeconds(t *testing.T) {
	for name, changed := range map[string]time.Time{
		"Africa/Monrovia": time.Date(1972, 1, 7, 0, 44, 30, 0, time.UTC),
		"Europe/Dublin":   time.Date(1916, 5, 21, 2, 25, 21, 0, time.UTC),
	} {
		z := zone(t, name)
		for tab, shows := range map[string]func(minute, second int) bool{
			"5,40 * * * *":    func(minute, second int) bool { return (minute == 5 || minute == 40) && second == 0 },
			"30 */10 * * * *": func(minute, second int) bool { return minute%10 == 0 && second == 30 },
		} {
			next := must(Crontab(tab, z))
			named := next(changed.Add(-2 * time.Hour))
			for at := changed.Add(-2*time.Hour + time.Second); at.Before(changed.Add(2 * time.Hour)); at = at.Add(time.Second) {
				_, minute, second := at.In(z).Clock()
				if shows(minute, second) != named.Equal(at) {
					t.Fatalf("%v, %q: %v is named: %v", z, tab, at.In(z), named.Equal(at))
				}
				if named.Equal(at) {
					named = next(at)
				}
			}
		}
	}
}

// A date is found, however far away it is.
func TestRareDates(t *testing.T) {
	for _, c := range []struct{ zone, after, want string }{
		{"UTC", "2028-02-29T03:30:00Z", "2032-02-29T03:30:00Z"},
		{"UTC", "2096-02-29T03:30:00Z", "2104-02-29T03:30:00Z"},
		{"UTC", "2098-06-01T00:00:00Z", "2104-02-29T03:30:00Z"},
		{"Europe/Berlin", "2096-02-29T02:30:00Z", "2104-02-29T02:30:00Z"},
		{"Asia/Kathmandu", "1896-02-28T21:48:44Z", "1904-02-28T21:48:44Z"},
	} {
		after, want := must(time.Parse(time.RFC3339, c.after)), must(time.Parse(time.RFC3339, c.want))
		if got := must(Crontab("30 3 29 2 *", zone(t, c.zone)))(after); !got.Equal(want) {
			t.Errorf("%s: %v after %v, want %v", c.zone, got.UTC(), after, want)
		}
	}
}

func TestCrontabRefused(t *testing.T) {
	for tab, word := range map[string]string{
		"":                                "empty",
		"61 * * * *":                      "above maximum",
		"* * *":                           "expected 5 to 6 fields",
		"@every 90s":                      "use Every",
		"CRON_TZ=Asia/Tokyo 0 3 * * *":    "it names a time zone",
		"TZ=Asia/Tokyo 0 3 * * *":         "it names a time zone",
		"  CRON_TZ=Asia/Tokyo 0 3 * * * ": "it names a time zone",
		"CRON_TZ= 0 3 * * *":              "it names a time zone",
		"CRON_TZ=":                        "it names a time zone",
		"TZ=UTC":                          "it names a time zone",
		"0 0 30 2 *":                      "it never falls due",
		"0 0 30,31 feb *":                 "it never falls due",
		"0 0 31 2,4,6,9,11 *":             "it never falls due",
		"0 0 31 4 ?":                      "it never falls due",
		", 0 0 1 1 *":                     "it never falls due",
		", * * * *":                       "it never falls due",
		"0 , * * *":                       "it never falls due",
		"0 0 , * *":                       "it never falls due",
		"0 0 * , *":                       "it never falls due",
		"0 0 * * ,":                       "it never falls due",
	} {
		_, err := Crontab(tab, time.UTC)
		wantFaults(t, err, word)
	}
	for _, tab := range []string{"0 3 * * *", "30 0 3 * * *", "@daily", " @monthly ", "0 0 29 2 *", "0 0 30 2 mon", "0 0 31 1,2 *"} {
		if _, err := Crontab(tab, time.UTC); err != nil {
			t.Errorf("%q: %v", tab, err)
		}
	}
	_, err := Crontab("0 0 30 2 *", time.Local)
	wantFaults(t, err, "it never falls due", "the local time zone")
}

// No expression panics when it is parsed or asked. An accepted expression falls due, at the same instant whenever it is
// asked.
func FuzzCrontab(f *testing.F) {
	for tab := range tabs {
		f.Add(tab, int64(1774735200), uint8(0))
	}
	for _, tab := range []string{"CRON_TZ=", "TZ=UTC * * * * *", "@every 1s", "0 0 30 2 *", ", * * * *", "*/0 1- * * *", "59-0/3 ? ? ? ?", "* * * * SUN-sat/2"} {
		f.Add(tab, int64(1861920000), uint8(1))
	}
	var all []*time.Location
	for _, name := range []string{"Africa/Cairo", "Australia/Lord_Howe", "America/Havana", "Africa/Monrovia"} {
		all = append(all, must(time.LoadLocation(name)))
	}
	f.Fuzz(func(t *testing.T, tab string, second int64, in uint8) {
		next, err := Crontab(tab, all[int(in)%len(all)])
		if err != nil {
			return
		}
		after := time.Unix(second%1e10, 0) // about the years 1653 to 2286
		at := next(after)
		if !at.After(after) || !next(after.Add(at.Sub(after)/2)).Equal(at) {
			t.Fatalf("%q: %v after %v, and %v halfway", tab, at, after, next(after.Add(at.Sub(after)/2)))
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// zones returns the zones with these names as Go has them, or all zones if there are no names. Of several names for the
// same zone, it returns one.
func zones(t *testing.T, names ...string) (found []*time.Location) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()

	seen := map[string]bool{}
	for _, file := range archive.File {
		if strings.HasSuffix(file.Name, "/") || len(names) > 0 && !slices.Contains(names, file.Name) {
			continue
		}
		data, err := fs.ReadFile(archive, file.Name)
		if err != nil {
			t.Fatal(err)
		}
		z, err := time.LoadLocationFromTZData(file.Name, data)
		if err != nil {
			t.Fatal(err)
		}
		if !seen[string(data)] {
			seen[string(data)] = true
			found = append(found, z)
		}
	}

	if len(names) > 0 && len(found) != len(names) {
		t.Fatalf("found %v of the zones %v", found, names)
	}
	return found
}
