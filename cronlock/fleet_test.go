package cronlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// A fleet is the replicas of a service that all have one job, and a scheduler of gocron's without any lock that
// says which ticks there are.
type fleet struct {
	w        *world
	replicas []*replica
	jobs     []*Job

	mu    sync.Mutex
	ticks []time.Time // what gocron alone runs
}

// A plan is what the replicas of a fleet have in common, and what not.
type plan struct {
	n       int           // of replicas; 0 is 3
	skew    time.Duration // by which the clock of the first is ahead
	stagger time.Duration // between the starts of replicas
	opts    []Option
	jobOpts []JobOption
	work    func(ctx context.Context) error
}

// fleet starts one. The scheduler without a lock starts last: the ticks that it has, all replicas have.
func (w *world) fleet(def gocron.JobDefinition, p plan) *fleet {
	w.t.Helper()
	f := &fleet{w: w}
	if p.n == 0 {
		p.n = 3
	}
	for i := range p.n {
		opts := p.opts
		if i == 0 && p.skew != 0 {
			opts = append(slices.Clone(opts), WithClock(skewed{defaults().clock, p.skew}))
		}
		r := w.replica(fmt.Sprint(i), opts...)
		f.replicas = append(f.replicas, r)
		f.jobs = append(f.jobs, r.job(def, p.work, p.jobOpts...))
	}
	plain, err := gocron.NewScheduler(w.sched...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.ends = append(w.ends, func() { plain.Shutdown() })
	if _, err := plain.NewJob(def, gocron.NewTask(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ticks = append(f.ticks, time.Now().UTC())
	})); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range f.replicas { // a definition is not to be used for another job while one of it runs
		r.sched.Start()
		time.Sleep(p.stagger)
	}
	plain.Start()
	return f
}

// due returns the ticks that gocron alone has run.
func (f *fleet) due() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ticks)
}

// once checks that each of the n ticks that were due has run once, that no other ran more than once, and that
// nothing was taken for a manual run.
func (f *fleet) once(n int) {
	f.w.t.Helper()
	due, per := f.due(), f.w.perTick()
	if len(due) != n {
		f.w.t.Errorf("%d ticks were due, the test is about %d", len(due), n)
	}
	for _, tick := range due {
		if per[tick] == 0 {
			f.w.t.Errorf("tick %v did not run", tick)
		}
	}
	f.atMostOnce()
	for tick := range per {
		if len(due) > 0 && tick.After(due[0]) && !slices.ContainsFunc(due, tick.Equal) && tick.Before(due[len(due)-1]) {
			f.w.t.Errorf("%v ran, and is no tick", tick)
		}
	}
}

func (f *fleet) atMostOnce() {
	f.w.t.Helper()
	for tick, n := range f.w.perTick() {
		if tick.IsZero() {
			f.w.t.Errorf("%d runs were taken for manual ones", n)
		} else if n != 1 {
			f.w.t.Errorf("tick %v ran %d times", tick, n)
		}
	}
}

// work is a job that takes d, and checks that no other run of it goes on meanwhile.
func work(t *testing.T, d time.Duration) func(context.Context) error {
	var mu sync.Mutex
	return func(context.Context) error {
		if !mu.TryLock() {
			t.Error("two runs overlap")
			return nil
		}
		defer mu.Unlock()
		if d > 0 {
			time.Sleep(d)
		}
		return nil
	}
}

// lasting is a job that takes d, and may overlap.
func lasting(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}
