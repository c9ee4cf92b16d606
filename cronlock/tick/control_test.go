package tick

import (
	"context"
	"slices"
	"time"
)

// do is for Pause, Resume and the like, which succeed.
func (w *world) do(f func(context.Context) error) {
	w.t.Helper()
	if err := f(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (r *replica) trigger(id string) {
	r.w.t.Helper()
	r.w.do(func(ctx context.Context) error { return r.Trigger(ctx, id) })
}

// within returns how many ticks have started that fell due in a span of time, and checks that each has once.
func (w *world) within(from, to time.Time) int {
	w.t.Helper()
	seen := map[time.Time]int{}
	for _, s := range w.ran() {
		if s.Trigger == "" && !s.Tick.Before(from) && s.Tick.Before(to) {
			if seen[s.Tick]++; seen[s.Tick] > 1 {
				w.t.Errorf("tick %v started %d times", s.Tick, seen[s.Tick])
			}
		}
	}
	return len(seen)
}

// triggered returns the runs of a trigger.
func (w *world) triggered(id string) []ran {
	return slices.DeleteFunc(w.ran(), func(s ran) bool { return s.Trigger != id })
}

// isPaused checks what a replica says.
func (r *replica) isPaused(want bool) {
	r.w.t.Helper()
	all, err := r.service.paused(r.w.t.Context())
	if p, is := all["job"]; err != nil || is != want || is && (p.By == "" || p.At.IsZero()) {
		r.w.t.Errorf("%s: paused is %v, %v, want %v", r.name, all, err, want)
	}
}

// paused returns the pauses that go on, by job.
func (s *Service) paused(ctx context.Context) (map[string]pausing, error) {
	b, err := s.read(ctx)
	all := map[string]pausing{}
	for _, p := range b.Paused {
		all[p.Job] = p
	}
	return all, err
}
