package cronlock

import (
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// A handle is a job of gocron's with a list of ticks that the test keeps.
type handle struct {
	gocron.Job
	schedule gocron.JobSchedule
	list     []time.Time
	period   time.Duration // of what comes after the list; 0: nothing does
}

func (h *handle) ID() uuid.UUID                { return uuid.Nil }
func (h *handle) Name() string                 { return "job" }
func (h *handle) Schedule() gocron.JobSchedule { return h.schedule }

// NextRuns computes what is not on the list, as gocron does.
func (h *handle) NextRuns(n int) ([]time.Time, error) {
	if len(h.list) == 0 {
		return nil, nil
	}
	if n <= len(h.list) {
		return h.list[:n], nil
	}
	out := append([]time.Time(nil), h.list...)
	for len(out) < n {
		next := time.Time{}
		if h.period > 0 {
			next = out[len(out)-1].Add(h.period)
		} else if out[len(out)-1].IsZero() {
			next = h.list[0] // it starts over
		}
		out = append(out, next)
	}
	return out, nil
}

// A ledger is the accounting of a job, driven by calls at seconds.
type ledger struct {
	t     *testing.T
	h     handle
	quiet time.Duration
	calls
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, h: handle{schedule: gocron.CronJobSchedule{Crontab: secondly}, period: time.Second}}
}

func second(s float64) time.Time { return day(1, 0).Add(time.Duration(s * float64(time.Second))) }

// lists sets what gocron has on its list.
func (l *ledger) lists(seconds ...float64) {
	l.h.list = nil
	for _, s := range seconds {
		l.h.list = append(l.h.list, second(s))
	}
}

// call is a call of Lock at now. It returns the tick, -1 for a manual run, or -2 for an own rerun.
func (l *ledger) call(now float64) float64 {
	l.t.Helper()
	s := scheduleOf(l.h.schedule)
	due, next, period, err := ticks(&l.h, &s, second(now))
	if err != nil {
		l.t.Fatal(err)
	}
	l.see(due, next, second(now).Add(early(period)), l.quiet)
	switch kind, tick := l.take(false); kind {
	case callTick:
		return tick.Sub(second(0)).Seconds()
	case callRerun:
		return -2
	}
	return -1
}

func (l *ledger) want(now, what float64) {
	l.t.Helper()
	if got := l.call(now); got != what {
		l.t.Errorf("the call at %v is for %v, want %v (-1: manual)", now, got, what)
	}
}

// A tick brings one call; all others are manual runs.
func TestCallsOfTicks(t *testing.T) {
	l := newLedger(t)
	l.lists(1)
	l.want(0.5, -1)
	l.want(1, 1)
	l.want(1.1, -1) // while gocron still lists the tick
	l.lists(2)
	l.want(1.2, -1)
	l.want(2.001, 2)
	l.lists(3)
	l.want(2.8, -1)
	l.want(2.95, 3) // the timer fired early: a clock was set back
	l.lists(3, 4)
	l.want(3.2, -1)
	l.want(4, 4)
}

// When several ticks have fallen due, one call each follows. All are for the latest: nobody knows better, and
// the first takes it.
func TestCallsThatQueue(t *testing.T) {
	l := newLedger(t)
	l.lists(1)
	l.want(1, 1)
	l.lists(2, 3, 4, 5)
	l.want(4.5, 4)
	l.want(4.5, 4)
	l.want(4.5, 4)
	l.want(4.5, -1)
	l.want(5, 5)
}

// gocron drops due ticks from its list when a run ends, which may be before the call of such a tick.
func TestCallOfDroppedTick(t *testing.T) {
	l := newLedger(t)
	l.lists(1)
	l.want(1, 1)
	l.lists(3) // the end of a run at 2 has dropped 2
	l.want(2, 2)
	l.want(2.1, -1)
	l.want(3, 3)
	l.h.period = 0 // the schedule ends with the tick
	l.lists(4)
	l.want(2.9, -1)
	l.lists()
	l.want(4, 4)
	l.want(4.1, -1)
}

// A clock that is set back brings no tick a second time, and makes no call of a tick a manual run.
func TestCallsAfterClockSetBack(t *testing.T) {
	l := newLedger(t)
	l.lists(10)
	l.want(10, 10)
	l.lists(10, 11)
	l.want(9.5, -1) // a run by hand after the clock was set back
	l.lists(11)
	l.want(11, 11)
	l.want(11.2, -1)
}

// Stopping and starting a scheduler leaves entries on gocron's list whose calls never come, and others twice.
func TestCallsAfterRestart(t *testing.T) {
	l := newLedger(t)
	l.lists(5)
	l.want(4.5, -1)
	l.lists(5, 5) // stopped and started before 5
	l.want(5, 5)
	l.want(5.3, -1)
	l.lists(6)
	l.want(5.4, -1)
	l.stopped(second(5.5))
	l.started(second(8.2))
	l.lists(6, 9)
	l.want(8.5, -1)
	l.want(9, 9)
	l.want(9.2, -1)
	l.lists(10)
	l.want(9.5, -1)
	l.stopped(second(9.6)) // and at once
	l.started(second(9.7))
	l.lists(10, 10)
	l.want(10, 10)
	l.want(10.2, -1)
	l.stopped(second(10.3))
	l.lists(11, 10.5) // it starts jobs immediately, before it tells
	l.want(10.5, 10.5)
	l.started(second(10.6))
	l.lists(12)
	l.want(10.7, -1)
	l.stopped(second(12.001)) // when the call of 12 is under way
	l.started(second(12.002))
	l.lists(12, 13)
	l.want(12.003, 12)
}

// A job that drops calls while it runs owes none for ticks that fell due meanwhile.
func TestCallsThatAreDropped(t *testing.T) {
	l := newLedger(t)
	l.lists(1)
	l.want(1, 1)
	l.drops = true // at 2 and 3
	l.lists(2, 3, 4)
	l.want(4, 4)
	l.lists(5)
	l.want(4.5, -1)
	l.lists(5, 6) // 5 is dropped
	l.want(6, 6)
	l.want(6.1, -1)
}

// Debts are forgotten when no job of the scheduler has run for some time, and not before.
func TestStaleDebts(t *testing.T) {
	l := newLedger(t)
	l.h.period = time.Hour
	l.h.schedule = gocron.CronJobSchedule{Crontab: "@hourly"}
	l.lists(3600, 7200)
	l.want(7200, 7200) // one of two
	l.lists(10800)
	l.want(7201, 7200)
	l.lists(10800, 14400)
	l.want(14400, 14400)
	l.lists(18000)
	l.quiet = stale
	l.want(14460, 14400)
	l.lists(18000, 21600)
	l.quiet = 0
	l.want(21600, 21600)
	l.lists(25200)
	l.quiet = 2 * stale
	l.want(21720, -1)
}

// The calls that an own RunNow brings are told from those of others.
func TestReruns(t *testing.T) {
	l := newLedger(t)
	l.lists(1)
	l.reruns = 1
	l.want(0.5, -2)
	l.want(0.6, -1)
	l.reruns = 1
	l.want(1, 1)
	l.want(1.1, -2)
	if kind, _ := l.take(true); kind != callRerun {
		t.Error("a call did not take the run handed over")
	}
	if l.reruns != 0 {
		t.Errorf("%d reruns are owed", l.reruns)
	}
}

// The ticks of a schedule are found however many are due, and however gocron pads its list.
func TestTicksDue(t *testing.T) {
	for _, c := range []struct {
		name   string
		h      handle
		now    float64
		due    int
		next   float64 // 0: unknown
		period time.Duration
	}{
		{"none", handle{schedule: gocron.CronJobSchedule{}, list: []time.Time{second(5)}, period: time.Second}, 3, 0, 5, time.Second},
		{"many", handle{schedule: gocron.CronJobSchedule{}, list: []time.Time{second(0)}, period: time.Second}, 999.5, 1000, 1000, time.Second},
		{"one time", handle{schedule: gocron.OneTimeJobSchedule{}, list: []time.Time{second(5)}}, 6, 1, 0, 10 * time.Second},
		{"not started", handle{schedule: gocron.CronJobSchedule{}}, 6, 0, 0, 10 * time.Second},
		{"random", handle{schedule: gocron.DurationRandomJobSchedule{Min: time.Second, Max: time.Minute}, list: []time.Time{second(2), second(5)}, period: time.Second}, 5, 2, 0, 900 * time.Millisecond},
	} {
		s := scheduleOf(c.h.schedule)
		due, next, period, err := ticks(&c.h, &s, second(c.now))
		if err != nil || len(due) != c.due || period != c.period || c.next != 0 && !next.Equal(second(c.next)) || c.next == 0 && !next.IsZero() {
			t.Errorf("%s: %d due, next %v, period %v, %v", c.name, len(due), next, period, err)
		}
	}
}

// Timers go on when the wall clock is set back.
func TestReckon(t *testing.T) {
	then := time.Date(2000, 1, 1, 13, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		elapsed   time.Duration
		now, want string
	}{
		{time.Hour, "14:00", "14:00"},
		{time.Hour, "13:00", "14:00"}, // set back by an hour
		{time.Hour, "12:00", "14:00"},
		{time.Hour, "17:00", "17:00"}, // asleep, or set forward
	} {
		now, _ := time.Parse("15:04", c.now)
		now = time.Date(2000, 1, 1, now.Hour(), 0, 0, 0, time.UTC)
		if got := reckon(then, c.elapsed, now).Format("15:04"); got != c.want {
			t.Errorf("%v after 13:00 the clock says %s: reckoned %s, want %s", c.elapsed, c.now, got, c.want)
		}
	}
	if now := then.Add(time.Second); reckon(time.Time{}, time.Hour, now) != now {
		t.Error("the first call is not at its own time")
	}
}
