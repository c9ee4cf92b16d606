package cronlock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Bad input names every fault, and registers nothing.
func TestAddRefuses(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: Every(time.Hour)})
		none := func() {}
		for name, c := range map[string]struct {
			job      string
			schedule Schedule
			fn       func(context.Context) error
			opts     []JobOption
			want     []string
		}{
			"everything": {opts: []JobOption{AtLeastOnce(0), WithGrace(ttl), WithHost(nil), WithHost(nil), nil},
				want: []string{"the function is nil", "the job name is empty", "the schedule is nil", "AtLeastOnce(0)", "shorter than the TTL",
					"the host is nil", "there are 2 hosts", "an option is nil"}},
			"too many starts":    {job: "other", schedule: Every(time.Minute), fn: r.work, opts: []JobOption{AtLeastOnce(11)}, want: []string{"must be 1 to 10"}},
			"too long a grace":   {job: "other", schedule: Every(time.Minute), fn: r.work, opts: []JobOption{WithGrace(366 * 24 * time.Hour)}, want: []string{"longer than 365 days"}},
			"two hosts":          {job: "other", schedule: Every(time.Minute), fn: r.work, opts: []JobOption{WithHost(none), WithHost(none)}, want: []string{"there are 2 hosts"}},
			"two of one name":    {job: "job", schedule: Every(time.Minute), fn: r.work, want: []string{"another job has this name"}},
			"a schedule's fault": {job: "job", schedule: Crontab("61 * * * *", time.UTC), fn: r.work, want: []string{"above maximum", "another job has this name"}},
		} {
			j, err := r.service.Add(c.job, c.schedule, c.fn, c.opts...)
			if j != nil {
				t.Errorf("%s: was added", name)
			}
			wantWords(t, name, err, c.want...)
		}
		if len(r.service.jobs) != 1 || r.service.jobs["job"] != r.Job {
			t.Errorf("jobs: %v", r.service.jobs)
		}
		till(2 * time.Minute)
		w.want(midnight)
		s, err := New(nil, "", nil)
		if s != nil {
			t.Error("a service of nothing")
		}
		wantWords(t, "New", err, "locker is nil", "the service name is empty", "an option is nil")
	})
}

// wantWords checks that an error says all of these.
func wantWords(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("%s: the error does not say %q: %v", what, word, err)
		}
	}
}

// A removed job starts nothing, and its name can be used again.
func TestRemove(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{})
		till(90 * time.Second)
		r.Remove()
		till(5 * time.Minute)
		w.want(midnight, at(time.Minute))
		if err := r.RunDue(t.Context()); core.ClassOf(err) != core.ClassClosed {
			t.Errorf("RunDue of a removed job: %v", err)
		}
		again, err := r.service.Add("job", Every(time.Minute), r.work)
		if err != nil {
			t.Fatal(err)
		}
		r.Remove() // of the one before
		till(7*time.Minute + 30*time.Second)
		w.want(midnight, at(time.Minute), at(5*time.Minute), at(6*time.Minute), at(7*time.Minute))
		again.Remove()
	})
}
