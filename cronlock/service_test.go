package cronlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// The error of Add names every fault of its arguments, and nothing is added. Another job may use the name of a removed
// job; a second Remove of the removed job does not affect it.
func TestAddRefuses(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: Every(time.Hour)})
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
			"two of one name":    {job: "job", schedule: Every(time.Minute), fn: r.work, want: []string{"another job has this name"}},
			"a schedule's fault": {job: "job", schedule: Crontab("61 * * * *", time.UTC), fn: r.work, want: []string{"above maximum", "another job has this name"}},
		} {
			j, err := r.service.Add(c.job, c.schedule, c.fn, c.opts...)
			if j != nil {
				t.Errorf("%s: was added", name)
			}
			wantWords(t, name, err, c.want...)
		}

		if len(r.service.jobs) != 1 || r.service.jobs["job"] != r.Job || r.grace != time.Minute {
			t.Errorf("jobs: %v, with a grace of %v", r.service.jobs, r.grace)
		}

		for _, n := range []int{0, maxLookback + 1} {
			if _, err := r.History(t.Context(), n); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("a history of %d: %v", n, err)
			}
		}

		r.Remove()
		again, err := r.service.Add("job", Every(time.Minute), r.work)
		if r.Remove(); err != nil || r.service.jobs["job"] != again {
			t.Errorf("the second Remove has removed the other job, or there is none: %v", err)
		}

		s, err := New(nil, "", nil)
		if s != nil {
			t.Error("a service of nothing")
		}
		wantWords(t, "New", err, "locker is nil", "the service name is empty", "an option is nil")
	})
}

// wantWords checks that the text of an error contains all words.
func wantWords(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("%s: the error does not say %q: %v", what, word, err)
		}
	}
}

// Close waits no longer than its context allows, and its error names the jobs that still run.
func TestCloseNamesRuns(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{work: hold(time.Minute)})
		till(31 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.service.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != `cronlock: not everything has ended; jobs that run: ["job"]: context deadline exceeded` {
			t.Errorf("Close: %v", err)
		}
		if _, err := r.service.Add("other", Every(time.Minute), r.work); !errors.Is(err, core.ErrClosed) {
			t.Errorf("Add after Close: %v", err)
		}
	})
}

// If no quorum has recorded the end of a run by the time the job's lease is over, an event and the log report that.
// Another replica starts the tick again. The replica that has completed the tick never does.
func TestEndThatIsNotRecorded(t *testing.T) {
	for name, both := range map[string]bool{"two replicas": true, "one replica": false} {
		bubbleOf(t, name, 3*time.Minute, func(t *testing.T, w *world) {
			var log logbook.Book
			p := plan{core: []core.Option{core.WithLogger(log.Logger())}, job: []JobOption{AtLeastOnce(2)}, work: func(context.Context) error {
				if len(w.ran()) == 1 {
					w.each((*testutil.Node).Down)
				}
				return nil
			}}

			w.replica("a", p)
			till(3*time.Minute + 2*time.Second)
			want := []time.Time{at(3 * time.Minute)}
			if both {
				w.replica("b", p)
				want = append(want, want[0])
			}

			till(3*time.Minute + 20*time.Second)
			w.each((*testutil.Node).Up)
			till(3*time.Minute + 50*time.Second)

			w.want(want...)
			if n := w.events.Count("cronlock run_unrecorded"); n != 1 {
				t.Errorf("%d events", n)
			}
			log.Want(t, 1, "the end of a run was not recorded", "attempt=1")
		})
	}
}
