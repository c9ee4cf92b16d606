package cronlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A gauge counts what is under way.
type gauge struct{ now, most, total atomic.Int32 }

func (g *gauge) begin() {
	g.total.Add(1)
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

func (g *gauge) end() { g.now.Add(-1) }

// gaugeLooks counts the looks of the engine at a job.
func (j *Job) gaugeLooks(g *gauge) {
	j.looks.mu.Lock()
	defer j.looks.mu.Unlock()
	look := j.looks.look
	j.looks.look = func() {
		g.begin()
		defer g.end()
		look()
	}
}

// count counts the requests that a replica sends, each to one node.
func (r *replica) count(sent *atomic.Int64) {
	r.locks.Link.OnRequest(func(redis.Cmder) testutil.Action {
		sent.Add(1)
		return testutil.Action{}
	})
}

// If each look takes longer than the period of the job, because the nodes and the observer are slow, a job still has one
// look under way. When the nodes are quick again, all is as before.
func TestLooksThatOutlastThePeriod(t *testing.T) {
	race.Campaign(t)
	for name, c := range map[string]struct {
		period   time.Duration
		replicas int
	}{
		"one replica":  {time.Second, 1},
		"two replicas": {2 * time.Second, 2}, // a tick is often started by the other one
	} {
		bubbleAlone(t, name, 30*time.Second, func(t *testing.T, w *world) {
			const jobs = 10
			var mu sync.Mutex
			runs := map[string]int{}
			ran := func(job string) int {
				mu.Lock()
				defer mu.Unlock()
				return runs[job]
			}
			names := make([]string, jobs)
			for i := range jobs {
				names[i] = fmt.Sprint("job ", i)
			}

			var replicas []*slowReplica
			for range c.replicas {
				replicas = append(replicas, w.slowReplica(c.period, names, func(job string) {
					mu.Lock()
					defer mu.Unlock()
					runs[job]++
				}))
			}
			sent := func() (n int64) {
				for _, r := range replicas {
					n += r.sent.Load()
				}
				return n
			}
			each := func(f func(r *slowReplica)) {
				for _, r := range replicas {
					f(r)
				}
			}

			// As it should be.
			each(func(r *slowReplica) { r.slow(0) })
			time.Sleep(10 * time.Second)
			synctest.Wait()
			goroutines, before := runtime.NumGoroutine(), sent()
			time.Sleep(20 * time.Second)
			usual := sent() - before

			// Slow nodes.
			each(func(r *slowReplica) { r.slow(900 * time.Millisecond) })
			time.Sleep(10 * time.Second)
			slow := runtime.NumGoroutine()
			for range 5 {
				time.Sleep(10 * time.Second)
				if n := runtime.NumGoroutine(); n > slow+5*jobs*c.replicas {
					t.Errorf("%d goroutines, %d at first", n, slow)
				}
			}

			// As before.
			each(func(r *slowReplica) { r.slow(0) })
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n := runtime.NumGoroutine(); n > goroutines+jobs*c.replicas {
				t.Errorf("%d goroutines after the nodes were slow, %d before", n, goroutines)
			}
			var earlier []int
			for _, name := range names {
				earlier = append(earlier, ran(name))
			}
			before = sent()
			const after = 20 * time.Second
			time.Sleep(after)
			if n := sent() - before; n > usual*3/2 {
				t.Errorf("%d requests after the nodes were slow, %d in the same time before", n, usual)
			}
			want := int(after/c.period) * 3 / 4 // a replica may skip a tick now and then
			for i, name := range names {
				if n := ran(name) - earlier[i]; n < want {
					t.Errorf("%s: %d runs after the nodes were slow, want %d", name, n, want)
				}
			}

			each(func(r *slowReplica) {
				for _, name := range names {
					if looks, takes := r.looks[name].most.Load(), r.takes[name].most.Load(); looks > 1 || takes > 1 {
						t.Errorf("%s: %d looks and %d requests for its lease at once", name, looks, takes)
					}
				}
				r.locks.Link.OnRequest(nil)
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A slowReplica is a process with several jobs, whose observer takes a millisecond whenever it is called.
type slowReplica struct {
	*Service
	locks *locktest.Locker
	sent  atomic.Int64      // requests
	looks map[string]*gauge // of the engine, by the job
	takes map[string]*gauge // requests for the lease of the job, by the job
}

// slowReplica starts one.
func (w *world) slowReplica(period time.Duration, names []string, work func(job string)) *slowReplica {
	w.t.Helper()
	r := &slowReplica{looks: map[string]*gauge{}, takes: map[string]*gauge{}}
	keys := map[string]*gauge{}
	for _, name := range names {
		r.looks[name], r.takes[name] = &gauge{}, &gauge{}
		keys[core.Key("cron", "service", name, "run")] = r.takes[name]
	}
	const pause = time.Millisecond
	r.locks = w.first.Replica(core.WithObserver(core.Observer{
		Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			time.Sleep(pause)
			g := keys[op.Key]
			if g == nil || op.Kind != core.OpAcquire {
				return ctx, func(core.Outcome) { time.Sleep(pause) }
			}
			g.begin()
			return ctx, func(core.Outcome) {
				time.Sleep(pause)
				g.end()
			}
		},
		Event: func(context.Context, core.Event) { time.Sleep(pause) },
	}))
	var err error
	r.Service, err = New(r.locks.Locker, "service")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		j, err := r.Add(name, Every(period), func(context.Context) error {
			work(name)
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		j.gaugeLooks(r.looks[name])
	}
	return r
}

// slow makes each round trip to the nodes take so long.
func (r *slowReplica) slow(trip time.Duration) {
	r.locks.Link.OnRequest(func(redis.Cmder) testutil.Action {
		r.sent.Add(1)
		return testutil.Action{Delay: trip / 2, ReplyDelay: trip / 2}
	})
}

// The bounds that the package document gives: looks at a job in a minute, and requests for a job to a node in a minute and
// in a look.
const (
	mostLooks     = 60
	quietRequests = 15
	lookRequests  = 40
)

// A job that is due every minute costs a node as many requests a minute as the package document says: if all is well, and if
// each look fails.
func TestRequestsPerMinute(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(r *replica, acquiring *atomic.Bool, sent *atomic.Int64)
		most int64 // requests
	}{
		"all is well": {func(r *replica, _ *atomic.Bool, sent *atomic.Int64) { r.count(sent) }, quietRequests},
		"two nodes are down": {func(r *replica, _ *atomic.Bool, sent *atomic.Int64) {
			r.w.nodes[0].Down()
			r.w.nodes[1].Down()
			r.count(sent)
		}, mostRequests},
		"the lease cannot be had": {func(r *replica, acquiring *atomic.Bool, sent *atomic.Int64) {
			r.locks.Link.OnRequest(func(redis.Cmder) testutil.Action {
				sent.Add(1)
				return testutil.Action{DropRequest: acquiring.Load()}
			})
		}, mostRequests},
		"starts cannot be recorded": {func(r *replica, _ *atomic.Bool, sent *atomic.Int64) {
			r.locks.Link.OnRequest(func(cmd redis.Cmder) testutil.Action {
				sent.Add(1)
				return testutil.Action{DropRequest: strings.Contains(fmt.Sprint(cmd.Args()...), "start")}
			})
		}, mostRequests},
	} {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			var r *replica
			var acquiring atomic.Bool // the lease of the job
			r = w.replica("a", plan{job: []JobOption{AtLeastOnce(2)}, core: []core.Option{core.WithObserver(core.Observer{
				Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
					if op.Kind != core.OpAcquire || op.Key != core.Key("cron", "service", "job", "run") {
						return ctx, nil
					}
					acquiring.Store(true)
					return ctx, func(core.Outcome) { acquiring.Store(false) }
				},
			})}})
			var looks gauge
			r.gaugeLooks(&looks)
			till(2*time.Minute + 30*time.Second)
			var sent atomic.Int64
			c.fail(r, &acquiring, &sent)
			runs := len(w.ran())
			for range 3 {
				sent.Store(0)
				looks.total.Store(0)
				time.Sleep(time.Minute)
				n := sent.Load() / int64(len(w.nodes))
				t.Logf("%d requests to a node in %d looks", n, looks.total.Load())
				if n > c.most || looks.total.Load() > mostLooks {
					t.Errorf("want at most %d requests and %d looks", c.most, mostLooks)
				}
			}
			if fails := len(w.ran()) == runs; fails == (name == "all is well") {
				t.Errorf("%d runs", len(w.ran())-runs)
			}
			r.locks.Link.OnRequest(nil)
			w.each((*testutil.Node).Up)
		})
	}
}

// A look that has the most to read of those that read under the lease of the job, with the records on a minority of the
// nodes and ten starts of the last tick, sends as many requests as the package document says.
func TestRequestsOfALook(t *testing.T) {
	race.Campaign(t)
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		const period = 20 * time.Second
		every := Every(period)
		again := []JobOption{AtLeastOnce(maxStarts), WithGrace(time.Hour)}
		panics := func(context.Context) error { panic("no paper") }
		b := w.replica("b", plan{schedule: every, job: append(again, uncalled...)})
		till(time.Minute + time.Second)
		if err := b.RunDue(t.Context()); err != nil { // it knows the ticks until now
			t.Fatal(err)
		}

		a := w.replica("a", plan{schedule: every, job: again, work: panics})
		till(time.Minute + (fewTicks-2)*period - time.Second) // the last tick has had all its starts
		a.end()
		w.nodes[0].RestartEmpty()
		w.nodes[1].RestartEmpty()
		time.Sleep(ttl + 5*time.Second) // the nodes vote again
		due, _ := b.latest(time.Now())
		if n := len(b.unknown(due, mostTicks)); n > fewTicks {
			t.Fatalf("%d ticks are unknown, want at most %d", n, fewTicks)
		} else {
			t.Logf("%d ticks are unknown", n)
		}

		var sent atomic.Int64
		b.count(&sent)
		before := len(w.ran())
		err := b.RunDue(t.Context())
		n := sent.Load() / int64(len(w.nodes))
		t.Logf("%d requests to a node; %v; %d runs before, %d now", n, err, before, len(w.ran()))
		if n > lookRequests {
			t.Errorf("want at most %d", lookRequests)
		}
		b.locks.Link.OnRequest(nil)
	})
}

// Nothing of a tick that this process has done is read again when the next one starts, whether the function succeeded or
// failed.
func TestTickBeforeIsNotReadAgain(t *testing.T) {
	for _, starts := range []int{1, 3} {
		for _, failed := range []error{nil, errors.New("no paper")} {
			bubbleOf(t, fmt.Sprintf("AtLeastOnce(%d), %v", starts, failed), 30*time.Second, func(t *testing.T, w *world) {
				r := w.replica("a", plan{job: []JobOption{AtLeastOnce(starts)}, work: func(context.Context) error { return failed }})
				till(5*time.Minute + 30*time.Second)
				before := []string{r.startKey(at(5*time.Minute), 1), r.endKey(at(5 * time.Minute))}
				var again, all atomic.Int32
				r.locks.Link.OnRequest(func(cmd redis.Cmder) testutil.Action {
					all.Add(1)
					asked := fmt.Sprint(cmd.Args()...)
					for _, key := range before {
						if strings.Contains(asked, key) {
							again.Add(1)
						}
					}
					return testutil.Action{}
				})
				till(6*time.Minute + 30*time.Second)
				r.locks.Link.OnRequest(nil)
				w.want(ticks(at(0), time.Minute, 7)...)
				if again.Load() > 0 || all.Load() == 0 {
					t.Errorf("%d of %d requests were about the tick before", again.Load(), all.Load())
				}
			})
		}
	}
}
