package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// held lists the keys of jobs that are held on so many nodes or more, without what core prefixes them with.
func (w *world) held(least int) (held []string) {
	w.t.Helper()
	on := map[string]int{}
	for _, n := range w.nodes {
		for _, key := range n.Keys() {
			_, name, ours := strings.Cut(key, "}r:"+core.Key("cron")+"/")
			if !ours {
				continue
			}
			v, err := n.Exec("GET", key)
			if err != nil {
				w.t.Fatal(err)
			}
			value, _ := v.(string)
			r, err := testutil.ParseResource(value)
			if err != nil {
				w.t.Fatal(err)
			}
			if r.Expiry != 0 {
				on[name]++
			}
		}
	}
	for name, n := range on {
		if n >= least {
			held = append(held, name)
		}
	}
	slices.Sort(held)
	return held
}

// leases are the keys held on a quorum: the last node may be told of an end a little later.
func (w *world) leases() []string { return w.held(len(w.nodes)/2 + 1) }

// However the scheduler is stopped in mid-run, a run keeps its leases until its function has returned, and leaves none
// behind then. Not in a bubble: gocron spins while it waits for runs, which keeps a bubble's time from passing. As that
// takes a processor, jobs of all policies are stopped at once.
func TestNoLeaseLeftBehind(t *testing.T) {
	for _, tt := range []struct {
		name string
		stop func(r *replica) error
	}{
		{"Shutdown", func(r *replica) error { return r.sched.Shutdown() }},
		{"StopJobs", func(r *replica) error { return r.sched.StopJobs() }},
		{"Remove", func(r *replica) (err error) {
			r.added.Range(func(_, j any) bool { err = errors.Join(err, j.(*Job).Remove()); return true })
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			noLeaseLeftBehind(t, tt.stop)
		})
	}
}

// noLeaseLeftBehind stops runs, which take no notice for two renewals more.
func noLeaseLeftBehind(t *testing.T, stop func(r *replica) error) {
	w := &world{t: t, nodes: testutil.NewNodes(t, 3)}
	defer func() {
		for _, end := range slices.Backward(w.ends) {
			end()
		}
	}()
	policies := map[string]JobOption{"once": AtMostOnce(), "again": AtLeastOnce(2), "allow": WithOverlap(Allow)}
	started, told := make(chan Run, len(policies)), make(chan struct{}, len(policies))
	goOn, stopped := make(chan struct{}), make(chan error, 1)
	finish := sync.OnceFunc(func() { close(goOn) })
	defer finish()
	r := w.replicaOn("0", w.locks(core.TTL(4*time.Second), core.WithClockWindow(0)))
	for name, policy := range policies {
		var once sync.Once
		r.add(name, gocron.CronJob(secondly, true), func(ctx context.Context) error {
			once.Do(func() {
				run, _ := FromContext(ctx)
				started <- run
				<-ctx.Done()
				told <- struct{}{}
				<-goOn
			})
			return nil
		}, policy)
	}
	r.sched.Start()
	var running []string
	for range policies {
		run := testutil.Receive(t, started)
		running = append(running, core.Key(run.Service, run.Job, "tick", stamp(run.Tick)))
		if run.Job != "allow" {
			running = append(running, core.Key(run.Service, run.Job, "run"))
		}
	}
	slices.Sort(running)
	go func() { stopped <- stop(r) }()
	for range policies {
		testutil.Receive(t, told)
	}
	theirs := func() bool { return slices.Equal(w.leases(), running) }
	testutil.Await(t, "only the runs have leases", theirs) // and not a tick that came just before the stop
	w.awaitRenewals(running, 2)
	if !theirs() {
		t.Errorf("the functions go on under %q, were %q", w.leases(), running)
	}
	finish()
	if err := testutil.Receive(t, stopped); err != nil {
		t.Error(err)
	}
	if err := r.Close(t.Context()); err != nil { // Remove does not wait for the runs
		t.Error(err)
	}
	if err := r.locks.Close(t.Context()); err != nil { // waits for what is under way to the last node
		t.Error(err)
	}
	// One node may have found the end of a lease too late by the clock window, and lets it run out.
	if held := w.leases(); len(held) > 0 {
		t.Errorf("held after the runs: %q", held)
	}
}

// awaitRenewals waits until one node has had so many requests for each of the leases.
func (w *world) awaitRenewals(leases []string, times int) {
	w.t.Helper()
	renewed := make([]chan struct{}, len(leases))
	for i := range renewed {
		renewed[i] = make(chan struct{}, 1000)
	}
	w.nodes[0].OnRequest(func(args []string) testutil.Action {
		for i, key := range leases {
			if slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, key) }) {
				renewed[i] <- struct{}{}
			}
		}
		return testutil.Action{}
	})
	for range times {
		for _, of := range renewed {
			testutil.Receive(w.t, of)
		}
	}
}

// What a stopped scheduler or a removed job leaves behind does not keep the job from going on.
func TestGoesOnAfterAStop(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		r := w.replica("0")
		work := func(ctx context.Context) error {
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
			}
			return nil
		}
		j := r.job(gocron.CronJob(minutely, true), work)
		r.sched.Start()
		w.ranAfter(70*time.Second, 1)
		if err := r.sched.StopJobs(); err != nil {
			t.Fatal(err)
		}
		r.sched.Start()
		w.ranAfter(70*time.Second, 2)
		if err := r.sched.RemoveJob(j.Handle().ID()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.job(gocron.CronJob(minutely, true), work)
		w.ranAfter(70*time.Second, 3)
		w.oncePerTick()
	})
}

// ranAfter lets time pass, and checks that there have been n runs by then.
func (w *world) ranAfter(d time.Duration, n int) {
	w.t.Helper()
	time.Sleep(d)
	if runs := w.ran(); len(runs) != n {
		w.t.Fatalf("%d runs, want %d: %v", len(runs), n, w.failed())
	}
}

// Close waits for runs and for those who watch the runs of others; Lock fails from then on.
func TestClose(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		release := make(chan struct{})
		holder, watcher := w.holderAndWatcher(func(context.Context) error { <-release; return nil })
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := holder.Close(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close in mid-run: %v", err)
		}
		start := time.Now()
		if err := watcher.Close(t.Context()); err != nil {
			t.Errorf("Close while watching: %v", err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("a watcher was closed after %v", d)
		}
		holder.startsNothing()
		watcher.startsNothing()
		if held := w.leases(); len(held) == 0 {
			t.Error("Close ended the run's leases")
		}
		closed := make(chan error, 1)
		go func() { closed <- holder.Close(t.Context()) }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("Close did not wait")
		}
		close(release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if held := w.held(1); len(held) > 0 {
			t.Errorf("held after Close: %q", held)
		}
	})
}

// holderAndWatcher starts two replicas, and returns the one that runs the first tick, and the other.
func (w *world) holderAndWatcher(work func(context.Context) error) (holder, watcher *replica) {
	w.t.Helper()
	var all []*replica
	for i := range 2 {
		r := w.replica(fmt.Sprint(i), AtLeastOnce(2))
		r.job(gocron.CronJob(minutely, true), work)
		r.sched.Start()
		all = append(all, r)
	}
	time.Sleep(70 * time.Second)
	runs := w.ran()
	if len(runs) != 1 {
		w.t.Fatalf("%d runs", len(runs))
	}
	if runs[0].replica == all[1].name {
		return all[1], all[0]
	}
	return all[0], all[1]
}

// startsNothing checks that the replica refuses runs because it is closed.
func (r *replica) startsNothing() {
	r.w.t.Helper()
	if err := r.the("job").RunNow(); !errors.Is(err, core.ErrClosed) {
		r.w.t.Errorf("RunNow after Close: %v", err)
	}
	if _, err := r.Locker("other").Lock(r.w.t.Context(), "job"); !errors.Is(err, core.ErrClosed) {
		r.w.t.Errorf("Lock after Close: %v", err)
	}
}

// Close does not end a run by hand: it waits for it.
func TestCloseDuringRunNow(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		r := w.replica("0")
		var cause error
		j := r.job(gocron.CronJob("@hourly", false), func(ctx context.Context) error {
			time.Sleep(10 * time.Second)
			cause = context.Cause(ctx)
			return nil
		})
		time.Sleep(time.Second)
		r.sched.Start()
		if err := j.RunNow(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		start := time.Now()
		if err := r.Close(t.Context()); err != nil || time.Since(start) < 7*time.Second {
			t.Errorf("closed after %v: %v", time.Since(start), err)
		}
		if len(w.ran()) != 1 || cause != nil {
			t.Errorf("%d runs, the context ended with %v", len(w.ran()), cause)
		}
		if n := len(r.sched.Jobs()); n != 1 {
			t.Errorf("gocron lists %d jobs", n)
		}
	})
}
