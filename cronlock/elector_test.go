package cronlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/cronlock/leader"
)

// leads waits until one of them leads, and returns it.
func (w *world) leads(all ...*replica) *replica {
	w.t.Helper()
	for range 2 * 60 * 100 {
		for _, r := range all {
			if r.elector.IsLeader(w.t.Context()) == nil {
				return r
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatal("nobody leads")
	return nil
}

// others returns all but one.
func others(but *replica, all []*replica) (rest []*replica) {
	for _, r := range all {
		if r != but {
			rest = append(rest, r)
		}
	}
	return rest
}

// revoke ends the term of the leader, as an operator does.
func (w *world) revoke() {
	w.t.Helper()
	key := core.Key("cron-leader", "group")
	state, err := w.first.Inspect(w.t.Context(), key)
	if err != nil || state.Holder == nil {
		w.t.Fatalf("nobody to revoke: %v", err)
	}
	if _, err := admin.Revoke(w.t.Context(), w.first.Locker, key, state.Holder.Token); err != nil {
		w.t.Fatal(err)
	}
}

// onlyFirst makes the first start of a tick do f; all others return at once.
func onlyFirst(tick time.Time, f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if r, _ := FromContext(ctx); r.Attempt == 1 && r.Tick.Equal(tick) {
			return f(ctx)
		}
		return nil
	}
}

// A leader that is cut off seconds before a tick costs nothing but time: the next one looks as soon as it leads.
func TestLeaderCutOffBeforeATick(t *testing.T) {
	withAndWithoutHosts(t, 30*time.Second, func(t *testing.T, w *world, host bool) {
		all := w.replicas(3, plan{elected: true, host: host})
		for i := range 2 {
			till(time.Duration(i+1)*2*time.Minute - 2*time.Second)
			cut := w.leads(all...)
			cut.locks.Link.Cut()
			time.Sleep(ttl)
			next := w.leads(others(cut, all)...)
			term, err := next.elector.Term()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			runs := w.ran()
			last := runs[len(runs)-1]
			if late := last.start.Sub(term.Since); last.replica != next.name || late < 0 || late > 500*time.Millisecond {
				t.Errorf("tick %v started on %s, %v after %s was elected", last.Tick, last.replica, late, next.name)
			}
			cut.locks.Link.Mend()
		}
		till(5*time.Minute + 30*time.Second)
		w.want(ticks(midnight, time.Minute, 6)...)
	})
}

// A run by hand needs no leader, and goes on when one loses its term; it excludes other runs.
func TestRunNowIgnoresTheLeadership(t *testing.T) {
	bubble(t, 57*time.Minute, func(t *testing.T, w *world) {
		all := w.replicas(2, plan{elected: true, schedule: Every(time.Hour), work: hold(30 * time.Second)})
		first := w.leads(all...)
		second := others(first, all)[0]
		if err := second.RunDue(t.Context()); !errors.Is(err, leader.ErrNotLeader) {
			t.Errorf("RunDue of a follower: %v", err)
		}
		var byHand sync.WaitGroup
		for _, r := range []*replica{second, first} {
			time.Sleep(time.Second) // the leader has looked
			byHand.Go(func() {
				if err := r.RunNow(t.Context()); err != nil {
					t.Errorf("RunNow: %v", err)
				}
			})
			time.Sleep(time.Second)
			if err := first.RunNow(t.Context()); !errors.Is(err, core.ErrHeld) {
				t.Errorf("RunNow beside a run: %v", err)
			}
			w.revoke()
			byHand.Wait()
			w.leads(all...)
		}
		till(time.Hour + time.Minute)
		w.want(time.Time{}, time.Time{}, at(time.Hour))
	})
}
