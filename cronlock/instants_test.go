package cronlock

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	"github.com/lockkit/lockkit/internal/race"
)

// A known schedule is made anew for each scheduler: gocron keeps state in a definition.
type known struct {
	name string
	def  func(start time.Time) gocron.JobDefinition
	wall []time.Duration // since midnight, of those that go by wall times
}

func knownSchedules() []known {
	var all []known
	cron := func(seconds bool, tabs ...string) {
		for _, tab := range tabs {
			all = append(all, known{name: tab, def: func(time.Time) gocron.JobDefinition { return gocron.CronJob(tab, seconds) }})
		}
	}
	cron(false, "* * * * *", "*/7 * * * *", "0 * * * *", "*/30 * * * *", "30 2 * * *", "0,30 0-3 * * *", "59 23 31 12 *", "0 0 29 2 *",
		"15 10 * * mon-fri", "15 10 1 * *", "0 12 13 * fri", "0 12 */10 * 1,3", "30 1 ? 3,4,10,11 sun", "0 9 31 * *",
		"TZ=America/New_York 30 1 * * *", "CRON_TZ=Europe/Berlin 0 2,3 * * *", "CRON_TZ=UTC 30 0,1 * * *", "TZ=UTC  */30 * * * *",
		"CRON_TZ=Local 30 1,2 * * *", "@yearly", "@monthly", "@weekly", "@daily", "TZ=Australia/Lord_Howe @midnight")
	cron(true, "*/20 * * * * *", "5 0 12 * * *", "59 59 1 * * *", "30 0 0 29 2 *", "1,31 30 1,2 * * 0", "7 7 7 1-7 * 2",
		"CRON_TZ=Asia/Kolkata 15 30 9 * * *", "45 1 * * *", "@hourly")

	wall := func(name string, def func(gocron.AtTimes) gocron.JobDefinition, clocks ...[3]uint) {
		k := known{name: name}
		var at []gocron.AtTime
		for _, c := range clocks {
			at = append(at, gocron.NewAtTime(c[0], c[1], c[2]))
			k.wall = append(k.wall, time.Duration(c[0])*time.Hour+time.Duration(c[1])*time.Minute+time.Duration(c[2])*time.Second)
		}
		k.def = func(time.Time) gocron.JobDefinition { return def(gocron.NewAtTimes(at[0], at[1:]...)) }
		all = append(all, k)
	}
	daily := func(at gocron.AtTimes) gocron.JobDefinition { return gocron.DailyJob(1, at) }
	weekly := func(days ...time.Weekday) func(gocron.AtTimes) gocron.JobDefinition {
		return func(at gocron.AtTimes) gocron.JobDefinition {
			return gocron.WeeklyJob(1, gocron.NewWeekdays(days[0], days[1:]...), at)
		}
	}
	monthly := func(days ...int) func(gocron.AtTimes) gocron.JobDefinition {
		return func(at gocron.AtTimes) gocron.JobDefinition {
			return gocron.MonthlyJob(1, gocron.NewDaysOfTheMonth(days[0], days[1:]...), at)
		}
	}
	wall("daily", daily, [3]uint{10, 0, 0})
	wall("daily, some times", daily, [3]uint{20, 30, 15}, [3]uint{2, 30, 0}, [3]uint{1, 45, 59}, [3]uint{0, 0, 0}, [3]uint{23, 59, 59})
	wall("weekly", weekly(time.Sunday), [3]uint{2, 0, 0})
	wall("weekly, some days", weekly(time.Friday, time.Saturday, time.Monday, time.Sunday), [3]uint{1, 30, 0}, [3]uint{3, 0, 0})
	wall("monthly", monthly(15), [3]uint{9, 0, 0})
	wall("monthly, all days", monthly(1, 30, 29, 31), [3]uint{0, 0, 0}, [3]uint{1, 30, 0}, [3]uint{23, 0, 30})
	wall("monthly, from the end", monthly(-1), [3]uint{2, 30, 0})
	wall("monthly, both", monthly(5, -7, 28, -31, -29, -3), [3]uint{2, 15, 0}, [3]uint{12, 0, 1})

	return append(all, known{name: "instants", def: func(start time.Time) gocron.JobDefinition {
		return gocron.OneTimeJob(gocron.OneTimeJobStartDateTimes(start.Add(time.Hour), start.Add(time.Second),
			start.Add(30*time.Hour), start.Add(-time.Hour), start.Add(time.Hour)))
	}})
}

// startedAt is a scheduler that was started at an instant, in the location of that.
func startedAt(t *testing.T, start time.Time) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(gocron.WithClock(clockwork.NewFakeClockAt(start)), gocron.WithLocation(start.Location()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	s.Start()
	return s
}

// listed are the first n ticks that a scheduler tells of a job.
func listed(t *testing.T, s gocron.Scheduler, def gocron.JobDefinition, n int) ([]time.Time, gocron.JobSchedule) {
	t.Helper()
	job, err := s.NewJob(def, gocron.NewTask(func() {}))
	if err != nil {
		t.Fatal(err)
	}
	runs, err := job.NextRuns(n)
	if err != nil || len(runs) != n {
		t.Fatalf("%d runs, want %d: %v", len(runs), n, err)
	}
	if i := slices.IndexFunc(runs, time.Time.IsZero); i >= 0 {
		runs = runs[:i] // there are no more
	}
	return runs, job.Schedule()
}

// shown is how often clocks show a time of the day of t.
func shown(t time.Time, wall time.Duration) (times int) {
	base := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC).Add(wall)
	for offset := -12 * time.Hour; offset <= 14*time.Hour; offset += 30 * time.Minute {
		if _, o := base.Add(-offset).In(t.Location()).Zone(); time.Duration(o)*time.Second == offset {
			times++
		}
	}
	return times
}

// regular reports whether clocks show all times of a schedule once on the day of t.
func (k *known) regular(t time.Time) bool {
	return !slices.ContainsFunc(k.wall, func(wall time.Duration) bool { return shown(t, wall) != 1 })
}

// changes are the instants within some years at which clocks are changed.
func changes(from, to time.Time) (all []time.Time) {
	for {
		_, end := from.ZoneBounds()
		if end.IsZero() || end.After(to) {
			return all
		}
		all, from = append(all, end), end
	}
}

// starts are instants spread over some years, half of them close to a change of the clocks.
func starts(in *time.Location, n int) (all []time.Time) {
	r := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2023, 1, 1, 0, 0, 0, 0, in)
	changes := changes(begin, begin.AddDate(6, 0, 0))
	for i := range n {
		start := begin.Add(time.Duration(r.Int64N(int64(6 * 365 * 24 * time.Hour))))
		if i%2 == 0 && len(changes) > 0 {
			start = changes[r.IntN(len(changes))].Add(time.Duration(r.IntN(25)-12) * 15 * time.Minute)
		}
		all = append(all, start)
	}
	return all
}

// gocron lists the same instants, but on days on which clocks do not show each time of a daily, weekly or monthly
// schedule just once.
func TestInstantsAreThoseOfGocron(t *testing.T) { checkInstants(t, 2) }

func TestInstantsAreThoseOfGocronManyStarts(t *testing.T) {
	race.Campaign(t)
	checkInstants(t, 30)
}

func checkInstants(t *testing.T, n int) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			for _, start := range starts(location(t, zone), n) {
				s := startedAt(t, start)
				for _, k := range knownSchedules() {
					k.check(t, s, start)
				}
			}
		})
	}
}

func (k *known) check(t *testing.T, scheduler gocron.Scheduler, start time.Time) {
	t.Helper()
	n := 50
	if strings.Contains(k.name, " 29 2 ") {
		n = 5 // the search for each takes long
	}
	want, s := listed(t, scheduler, k.def(start), n+1)
	next := instants(s, start.Location())
	if next == nil {
		t.Fatalf("%s has none", k.name)
	}
	var got []time.Time
	for at := next(start.UTC()); !at.IsZero() && len(got) < n; at = next(at) {
		got = append(got, at)
	}
	if k.wall == nil {
		want = k.runningBefore(t, start, want)
		want = want[:min(n, len(want))]
	} else {
		if len(got) < n {
			t.Fatalf("%s after %v: only %v", k.name, start, got)
		}
		end := slices.MinFunc([]time.Time{got[n-1], want[n]}, time.Time.Compare) // to it, both lists are complete
		out := func(at time.Time) bool { return at.After(end) || !k.regular(at) }
		got, want = slices.DeleteFunc(got, out), slices.DeleteFunc(want, out)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !got[i].Equal(want[i]) {
			t.Fatalf("%s after %v, from the %d. on:\ngot  %v\nwant %v", k.name, start, i+1, got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
}

func location(t *testing.T, zone string) *time.Location {
	t.Helper()
	in, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// runningBefore leaves out of what gocron lists the first tick, where gocron does so, too, had it been started before
// clocks showed the same for the first time.
func (k *known) runningBefore(t *testing.T, start time.Time, runs []time.Time) []time.Time {
	t.Helper()
	for _, back := range []time.Duration{30 * time.Minute, time.Hour} {
		first := runs[0].Add(-back)
		if first.After(start) || first.Format(time.DateTime) != runs[0].Format(time.DateTime) {
			continue
		}
		before, _ := listed(t, startedAt(t, first.Add(-time.Second)), k.def(start), 2)
		if before[0].Equal(first) && before[1].After(runs[0]) {
			return runs[1:]
		}
	}
	return runs
}

// Around a change of the clocks the instants do not depend on where one begins to look.
func TestInstantsWhereClocksChange(t *testing.T) {
	daily := func(at ...gocron.AtTime) gocron.JobDefinition {
		return gocron.DailyJob(1, gocron.NewAtTimes(at[0], at[1:]...))
	}
	cron := func(tab string) gocron.JobDefinition { return gocron.CronJob(tab, false) }
	for _, c := range []struct {
		name, zone string
		def        gocron.JobDefinition
		after      string
		want       []string
	}{
		{"daily, not shown", "Europe/Berlin", daily(at(1, 30), at(2, 30)), "2026-03-28T02:00:00+01:00",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T01:30:00+01:00", "2026-03-30T01:30:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"daily, shown twice", "Europe/Berlin", daily(at(1, 30), at(2, 30)), "2026-10-24T02:30:00+02:00",
			[]string{"2026-10-25T01:30:00+02:00", "2026-10-26T01:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		{"daily, in the hour shown twice", "America/New_York", daily(at(1, 30), at(2, 0)), "2026-11-01T01:15:00-04:00",
			[]string{"2026-11-01T02:00:00-05:00", "2026-11-02T01:30:00-05:00"}},
		{"daily, half an hour", "Australia/Lord_Howe", daily(at(1, 29), at(1, 30), at(2, 0)), "2026-04-05T00:00:00+11:00",
			[]string{"2026-04-05T01:29:00+11:00", "2026-04-05T02:00:00+10:30", "2026-04-06T01:29:00+10:30", "2026-04-06T01:30:00+10:30"}},
		{"daily, a day without midnight", "America/Santiago", daily(at(0, 0), at(10, 0)), "2025-09-06T10:00:00-04:00",
			[]string{"2025-09-07T10:00:00-03:00", "2025-09-08T00:00:00-03:00", "2025-09-08T10:00:00-03:00"}},
		{"daily, a day that there never was", "Pacific/Apia", daily(at(10, 0)), "2011-12-28T12:00:00-10:00",
			[]string{"2011-12-29T10:00:00-10:00", "2011-12-31T10:00:00+14:00", "2012-01-01T10:00:00+14:00"}},
		{"weekly, not shown", "Europe/Berlin", gocron.WeeklyJob(1, gocron.NewWeekdays(time.Sunday), gocron.NewAtTimes(at(2, 0))),
			"2026-03-23T00:00:00+01:00", []string{"2026-04-05T02:00:00+02:00"}},
		{"monthly, shown twice", "Europe/Berlin", gocron.MonthlyJob(1, gocron.NewDaysOfTheMonth(25), gocron.NewAtTimes(at(2, 59), at(3, 0))),
			"2026-09-26T00:00:00+02:00", []string{"2026-10-25T03:00:00+01:00", "2026-11-25T02:59:00+01:00"}},
		{"cron, not shown", "Europe/Berlin", cron("30 2 * * *"), "2026-03-28T02:00:00+01:00",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00"}},
		{"cron, shown twice", "Europe/Berlin", cron("30 2 * * *"), "2026-10-25T02:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"cron, after the first of two", "Europe/Berlin", cron("30 2 * * *"), "2026-10-25T02:45:00+02:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		{"cron, just before the second", "America/New_York", cron("30 1 * * *"), "2026-11-01T01:29:59-05:00",
			[]string{"2026-11-02T01:30:00-05:00"}},
		{"cron, each hour", "Europe/Berlin", cron("0 * * * *"), "2026-10-25T01:30:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00", "2026-10-25T04:00:00+01:00"}},
		{"cron, each half hour", "Europe/Berlin", cron("*/30 * * * *"), "2026-10-25T02:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"}},
		{"cron, by clocks that do not change", "Europe/Berlin", cron("CRON_TZ=UTC 30 0,1 * * *"), "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"cron, by clocks that do not change, the second only", "Europe/Berlin", cron("CRON_TZ=UTC 30 1 * * *"), "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"}},
		{"cron, by clocks that do, of a scheduler whose do not", "UTC", cron("CRON_TZ=Europe/Berlin 30 2 * * *"), "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := location(t, c.zone)
			after, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			_, s := listed(t, startedAt(t, day(1, 0).In(in)), c.def, 1) // not then: for a day without midnight gocron searches for seconds
			next := instants(s, in)
			for _, want := range c.want {
				at, err := time.Parse(time.RFC3339, want)
				if err != nil {
					t.Fatal(err)
				}
				for _, from := range []time.Time{after, at.Add(-time.Second), at.Add(-1)} {
					if got := next(from); !got.Equal(at) {
						t.Fatalf("after %v: %v, want %v", from.In(in), got, at.In(in))
					}
				}
				after = at
			}
		})
	}
}

// Schedules whose ticks are not the same instants on all replicas, or that gocron would refuse, have none that
// could be told; some have, but there are none.
func TestInstantsThereAreNone(t *testing.T) {
	at := []time.Time{gocron.TimeFromAtTime(at(10, 0), time.UTC)}
	for name, c := range map[string]struct {
		s     gocron.JobSchedule
		told  bool
		place *time.Location
	}{
		"no schedule":         {s: nil},
		"duration":            {s: gocron.DurationJobSchedule{Duration: time.Hour}},
		"random":              {s: gocron.DurationRandomJobSchedule{Min: time.Hour, Max: 2 * time.Hour}},
		"@every":              {s: gocron.CronJobSchedule{Crontab: "@every 1h"}},
		"@every in a zone":    {s: gocron.CronJobSchedule{Crontab: "CRON_TZ=Asia/Kolkata  @every 1h"}},
		"every other day":     {s: gocron.DailyJobSchedule{Interval: 2, AtTimes: at}},
		"every other week":    {s: gocron.WeeklyJobSchedule{Interval: 2, DaysOfWeek: []time.Weekday{1}, AtTimes: at}},
		"every other month":   {s: gocron.MonthlyJobSchedule{Interval: 2, Days: []int{1}, AtTimes: at}},
		"empty crontab":       {s: gocron.CronJobSchedule{}},
		"four fields":         {s: gocron.CronJobSchedule{Crontab: "* * * *"}},
		"seven fields":        {s: gocron.CronJobSchedule{Crontab: "* * * * * * *"}},
		"no such minute":      {s: gocron.CronJobSchedule{Crontab: "60 * * * *"}},
		"no such descriptor":  {s: gocron.CronJobSchedule{Crontab: "@fortnightly"}},
		"a zone alone":        {s: gocron.CronJobSchedule{Crontab: "TZ=UTC"}},
		"no such zone":        {s: gocron.CronJobSchedule{Crontab: "CRON_TZ=Nowhere/City 0 * * * *"}},
		"a zone without name": {s: gocron.CronJobSchedule{Crontab: "0 * * * *"}, place: time.FixedZone("UTC+1", 3600)},
		"never":               {s: gocron.CronJobSchedule{Crontab: "0 0 30 2 *"}, told: true},
		"at no time":          {s: gocron.DailyJobSchedule{Interval: 1}, told: true},
		"on no weekday":       {s: gocron.WeeklyJobSchedule{Interval: 1, AtTimes: at}, told: true},
		"on no day":           {s: gocron.MonthlyJobSchedule{Interval: 1, AtTimes: at}, told: true},
		"at no instant":       {s: gocron.OneTimeJobSchedule{}, told: true},
		"at one in the past":  {s: gocron.OneTimeJobSchedule{StartAt: []time.Time{day(1, 0)}}, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			in := time.UTC
			if c.place != nil {
				in = c.place
			}
			next := instants(c.s, in)
			if told := next != nil; told != c.told {
				t.Fatalf("told: %v, want %v", told, c.told)
			}
			if next != nil && !next(day(1, 0)).IsZero() {
				t.Errorf("got %v", next(day(1, 0)))
			}
		})
	}
}

// What gocron's options add to a schedule counts for the ticks of the past, too.
func TestInstantsWithinBounds(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		day := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		r := w.replica("0")
		r.sched.Start()
		bounded := r.add("bounded", gocron.CronJob(minutely, true), nil, WithGocron(
			gocron.WithStartAt(gocron.WithStartDateTime(day)), gocron.WithTags("a"), gocron.WithStopAt(gocron.WithStopDateTime(day.Add(time.Hour)))))
		for after, want := range map[time.Time]time.Time{
			day.Add(-time.Hour):       day,
			day:                       day.Add(time.Minute),
			day.Add(58 * time.Minute): day.Add(59 * time.Minute),
			day.Add(59 * time.Minute): {},
			day.Add(time.Hour):        {},
		} {
			if got := (instantsOf{bounded}).Next(after); !got.Equal(want) {
				t.Errorf("after %v: %v, want %v", after, got, want)
			}
		}
		custom := r.add("custom", gocron.CronJob("whenever", true), nil, WithGocron(gocron.WithCronImplementation(everyMinute{})))
		if got := (instantsOf{custom}).Next(day); !got.IsZero() {
			t.Errorf("of another language for crontabs: %v", got)
		}
	})
}

// everyMinute is a gocron.Cron with a language of its own.
type everyMinute struct{}

func (everyMinute) IsValid(string, *time.Location, time.Time) error { return nil }
func (everyMinute) Next(after time.Time) time.Time {
	return after.Truncate(time.Minute).Add(time.Minute)
}
