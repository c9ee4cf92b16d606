package cronlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// A candidate is a process whose Service has an elector.
type candidate struct {
	*Service
	elector *leader.Elector
}

func (w *world) candidate(opts ...core.Option) *candidate {
	w.t.Helper()
	return w.candidateOn(w.first.Replica(opts...).Locker)
}

// candidateWith starts a candidate whose elector has options.
func (w *world) candidateWith(opts ...leader.Option) *candidate {
	w.t.Helper()
	return w.candidateOn(w.first.Replica().Locker, opts...)
}

func (w *world) candidateOn(locker *core.Locker, opts ...leader.Option) *candidate {
	w.t.Helper()
	e, err := leader.New(locker, "group", opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := New(locker, "service", WithElector(e))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := errors.Join(s.Close(context.Background()), e.Close(context.Background())); err != nil {
			w.t.Error(err)
		}
	})
	return &candidate{s, e}
}

// add adds a job, and returns the number of its runs.
func (c *candidate) add(t *testing.T, name string, s Schedule, work func(context.Context) error) *atomic.Int32 {
	t.Helper()
	var ran atomic.Int32
	_, err := c.Add(name, s, func(ctx context.Context) error { ran.Add(1); return work(ctx) })
	if err != nil {
		t.Fatal(err)
	}
	return &ran
}

// While Close of a leader's Service waits for a long run, another process leads and starts the other jobs in time. The
// run goes on, and its job starts nowhere else. The process that closes does not lead again, even if the other one
// resigns.
func TestLeaderClosesItsService(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		all := []*candidate{w.candidate(), w.candidate(), w.candidate()}
		var mu sync.Mutex
		long, most, minutely := 0, 0, map[*candidate]*atomic.Int32{}
		for _, c := range all {
			c.add(t, "long", Every(5*time.Minute), func(ctx context.Context) error {
				mu.Lock()
				long++
				most = max(most, long)
				mu.Unlock()
				err := hold(20 * time.Minute)(ctx)
				mu.Lock()
				long--
				mu.Unlock()
				return err
			})
			minutely[c] = c.add(t, "minutely", Every(time.Minute), hold(0))
		}

		till(5*time.Minute + 30*time.Second)
		ran := func() (n int32) {
			for _, c := range all {
				n += minutely[c].Load()
			}
			return n
		}

		who := 0
		for i, c := range all {
			if c.elector.IsLeader(t.Context()) == nil {
				who = i
			}
		}

		closed := make(chan error, 1)
		go func() { closed <- all[who].Close(t.Context()) }()
		for _, c := range []*candidate{all[(who+1)%3], all[(who+2)%3]} {
			before := ran()
			time.Sleep(4 * time.Minute)
			if n := ran() - before; n != 4 || all[who].elector.IsLeader(t.Context()) == nil {
				t.Errorf("%d of 4 ticks ran; the process that closes leads: %v", n, all[who].elector.IsLeader(t.Context()) == nil)
			}
			c.elector.Resign() // the next candidate leads
		}

		select {
		case err := <-closed:
			t.Errorf("Close has not waited for the run: %v", err)
		default:
		}
		if err := <-closed; err != nil || most != 1 {
			t.Errorf("Close: %v; %d runs of the long job at once", err, most)
		}
	})
}

// The loss of a term ends the contexts of its runs. If the Service is closed first, the term ends, and the run goes on
// under the lease of its job.
func TestTermIsLostAroundClose(t *testing.T) {
	for _, closes := range []bool{false, true} {
		name := map[bool]string{false: "before", true: "after"}[closes]
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			c := w.candidate()
			ended := make(chan error, 1)
			c.add(t, "long", Every(time.Minute), func(ctx context.Context) error {
				err := hold(2 * time.Minute)(ctx)
				select {
				case ended <- context.Cause(ctx):
				default:
				}
				return err
			})

			till(time.Minute + 5*time.Second)
			if closes {
				go func() { _ = c.Close(t.Context()) }()
				time.Sleep(time.Second)
			}

			key := core.Key("leader", "group")
			state, err := w.first.Inspect(t.Context(), key)
			if err != nil || (state.Holder == nil) != closes {
				t.Fatalf("the leadership: %+v, %v", state, err)
			}
			if closes { // the term is already over
			} else if _, err := admin.Revoke(t.Context(), w.first.Locker, key, state.Holder.Token); err != nil {
				t.Fatal(err)
			}

			if err := <-ended; errors.Is(err, core.ErrLost) != !closes {
				t.Errorf("the run ended with %v", err)
			}
		})
	}
}

// Close of a Service is refused in a run of one of its own jobs, because it would wait for itself. It then closes
// nothing. In a run of another Service, Close succeeds.
func TestCloseInARun(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		refused, other := make(chan error, 10), make(chan error, 10)
		var r *replica
		ready := make(chan struct{})
		second, err := New(w.first.Replica().Locker, "other")
		if err != nil {
			t.Fatal(err)
		}

		r = w.replica("a", plan{work: func(ctx context.Context) error {
			<-ready
			refused <- r.service.Close(ctx)
			other <- second.Close(ctx)
			return nil
		}})

		close(ready)
		err = testutil.Receive(t, refused)
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), `in a run of job "job"`) {
			t.Errorf("Close: %v", err)
		}
		if err := testutil.Receive(t, other); err != nil {
			t.Errorf("Close of another Service: %v", err)
		}

		till(3*time.Minute + 30*time.Second)
		w.want(ticks(at(0), time.Minute, 4)...)
	})
}

// Close of an elector is refused in a run of its term, because it would wait for itself.
func TestElectorIsClosedInARun(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		c := w.candidate()
		refused := make(chan error, 1)
		c.add(t, "job", At(at(time.Minute)), func(ctx context.Context) error {
			refused <- c.elector.Close(ctx)
			return nil
		})
		if err := testutil.Receive(t, refused); !errors.Is(err, core.ErrInvalid) || c.elector.IsLeader(t.Context()) != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// The error of Close names every job that still runs, also a job that was removed and a job whose end is being
// recorded.
func TestCloseNamesRemovedJobs(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{work: hold(3 * time.Minute), job: []JobOption{AtLeastOnce(2)}})

		till(time.Minute)
		r.Remove()
		if _, err := r.service.Add("next", Every(time.Minute), func(context.Context) error {
			w.each((*testutil.Node).Down)
			return nil
		}, AtLeastOnce(2)); err != nil {
			t.Fatal(err)
		}

		till(time.Minute + 2*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.service.Close(ctx)
		wantWords(t, "Close", err, `["job" "next"]`)
		w.each((*testutil.Node).Up)
	})
}

// A replica tries to record the end of a run for no longer than Close waits.
func TestCloseEndsTheRecording(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: At(at(time.Minute)), job: []JobOption{AtLeastOnce(2)}, core: []core.Option{core.TTL(time.Minute)}, work: func(context.Context) error {
			w.each((*testutil.Node).Down)
			return nil
		}})

		till(time.Minute + 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.service.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}

		time.Sleep(5 * time.Second)
		if n := w.events.Count("cronlock run_unrecorded"); n != 1 {
			t.Errorf("%d ends were given up", n)
		}
		w.each((*testutil.Node).Up)
	})
}
