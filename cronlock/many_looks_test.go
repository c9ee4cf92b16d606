package cronlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A gauge counts activities: those under way, the most at once, and all.
type gauge struct{ now, most, total atomic.Int32 }

func (g *gauge) begin() {
	g.total.Add(1)
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

func (g *gauge) end() { g.now.Add(-1) }

// gaugeLooks makes g count the engine's polls of the job.
func (j *Job) gaugeLooks(g *gauge) {
	j.poller.mu.Lock()
	defer j.poller.mu.Unlock()
	look := j.poller.poll
	j.poller.poll = func() {
		g.begin()
		defer g.end()
		look()
	}
}

// countRequests makes sent count the requests of a process, each to one node. A request is a script, or a read of a
// record, which has one TIME command. lost reports whether a command is dropped; if it is nil, none is.
func countRequests(locks *locktest.Locker, sent *atomic.Int64, lost func(cmd redis.Cmder) bool) {
	locks.Link.OnRequest(func(cmd redis.Cmder) testutil.Action {
		switch cmd.Name() {
		case "eval", "evalsha", "time":
			sent.Add(1)
		}
		return testutil.Action{DropRequest: lost != nil && lost(cmd)}
	})
}

// isScript reports whether a command is a script.
func isScript(cmd redis.Cmder) bool { return cmd.Name() == "eval" || cmd.Name() == "evalsha" }

// goroutines returns the number of goroutines that run methods of Job or claim.
func goroutines() (n int) {
	buf := make([]byte, 16<<20)
	for _, one := range bytes.Split(buf[:runtime.Stack(buf, true)], []byte("\n\n")) {
		if bytes.Contains(one, []byte("lockkit/cronlock.(*Job)")) || bytes.Contains(one, []byte("lockkit/cronlock.(*claim)")) {
			n++
		}
	}
	return n
}

// If each poll takes longer than the period of the job, because the nodes and the observer are slow, a job still has
// only one poll under way. When the nodes are fast again, requests and runs are as frequent as before.
func TestLooksThatOutlastThePeriod(t *testing.T) { //nolint:gocognit // cases in cases
	race.SkipSweep(t)
	for name, c := range map[string]struct {
		period   time.Duration
		replicas int
	}{
		"one replica":  {time.Second, 1},
		"two replicas": {2 * time.Second, 2}, // the other replica often starts a tick
	} {
		bubbleAlone(t, name, 30*time.Second, func(t *testing.T, w *world) {
			const jobs = 4
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

			// Fast nodes.
			each(func(r *slowReplica) { r.slow(0) })
			time.Sleep(10 * time.Second)
			before := sent()
			time.Sleep(20 * time.Second)
			usual := sent() - before

			// Slow nodes. The first two polls of a job at once end the test, because polls that multiply would fill the memory.
			each(func(r *slowReplica) { r.slow(900 * time.Millisecond) })
			// A job's goroutines are its poll, and a call of the observer.
			const most = 2

			for range 6 {
				for range 10 {
					time.Sleep(time.Second)
					each(func(r *slowReplica) { r.wantOneLook() })
				}
				if n := goroutines(); n > most*jobs*c.replicas {
					t.Fatalf("%d goroutines with slow nodes, want at most %d", n, most*jobs*c.replicas)
				}
			}

			// Fast nodes again.
			each(func(r *slowReplica) { r.slow(0) })
			time.Sleep(30 * time.Second)
			if n := goroutines(); n > 2*jobs*c.replicas {
				t.Errorf("%d goroutines after the nodes were slow, for %d jobs", n, jobs*c.replicas)
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
				r.wantOneLook()
				r.locks.Link.OnRequest(nil)
				if err := r.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A slowReplica is a process with several jobs. Each call of its observer takes a millisecond.
type slowReplica struct {
	*Service
	t     *testing.T
	locks *locktest.Locker
	sent  atomic.Int64      // requests
	looks map[string]*gauge // polls of the engine, by job
	takes map[string]*gauge // requests for the job's lease, by job
}

// slowReplica starts a slowReplica. Its jobs call work with their names.
func (w *world) slowReplica(period time.Duration, names []string, work func(job string)) *slowReplica {
	w.t.Helper()
	r := &slowReplica{t: w.t, looks: map[string]*gauge{}, takes: map[string]*gauge{}}
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

// wantOneLook ends the test if a job had two polls, or two requests for its lease, under way at once.
func (r *slowReplica) wantOneLook() {
	r.t.Helper()
	for name, looks := range r.looks {
		n, takes := looks.most.Load(), r.takes[name].most.Load()
		if n > 1 || takes > 1 {
			r.t.Fatalf("%s: %d looks and %d requests for its lease at once", name, n, takes)
		}
	}
}

// slow makes each round trip to the nodes take the time trip, and counts the requests.
func (r *slowReplica) slow(trip time.Duration) {
	r.locks.Link.OnRequest(func(redis.Cmder) testutil.Action {
		r.sent.Add(1)
		return testutil.Action{Delay: trip / 2, ReplyDelay: trip / 2}
	})
}

// The package documentation states these bounds for a job, except quietRequests. The number of requests is that to one
// node.
const (
	mostLooks     = 60   // polls in a minute
	quietRequests = 15   // requests in a minute if all is well; the documentation says about 10
	lookRequests  = 120  // requests of a poll
	worstRequests = 7200 // requests in a minute in the worst case
)

// A job that is due every minute costs a node no more requests a minute than the package documentation says, if all is
// well and if each poll fails. The requests of a Locker without jobs are subtracted.
func TestRequestsPerMinute(t *testing.T) {
	for name, c := range map[string]struct {
		down int                                        // the number of nodes that are down
		lost func(cmd redis.Cmder, acquiring bool) bool // acquiring: the job's lease is being requested
		runs bool
		most int64
	}{
		"all is well":        {runs: true, most: quietRequests},
		"two nodes are down": {down: 2, most: mostRequests},
		"the lease cannot be had": {
			lost: func(_ redis.Cmder, acquiring bool) bool { return acquiring },
			most: mostRequests,
		},
		"starts cannot be recorded": {
			lost: func(cmd redis.Cmder, _ bool) bool {
				return isScript(cmd) && strings.Contains(fmt.Sprint(cmd.Args()...), "start")
			},
			most: mostRequests,
		},
	} {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			var acquiring atomic.Bool
			r := w.replica("a", plan{job: []JobOption{AtLeastOnce(2)}, core: []core.Option{core.WithObserver(core.Observer{
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
			idle := w.first.Replica()

			till(2*time.Minute + 30*time.Second)
			for _, n := range w.nodes[:c.down] {
				n.Down()
			}

			var sent, background atomic.Int64
			countRequests(idle, &background, nil)
			countRequests(r.locks, &sent, func(cmd redis.Cmder) bool { return c.lost != nil && c.lost(cmd, acquiring.Load()) })

			for range 3 {
				sent.Store(0)
				background.Store(0)
				looks.total.Store(0)
				runs := len(w.ran())
				time.Sleep(time.Minute)

				n := (sent.Load() - background.Load()) / int64(len(w.nodes))
				t.Logf("%d requests to a node in %d looks, and %d without the job", n, looks.total.Load(), background.Load()/3)
				if n > c.most || looks.total.Load() > mostLooks {
					t.Errorf("want at most %d requests and %d looks", c.most, mostLooks)
				}
				if more := len(w.ran()) > runs; more != c.runs {
					t.Errorf("a tick has started: %v", more)
				}
			}
			r.locks.Link.OnRequest(nil)
			w.each((*testutil.Node).Up)
		})
	}
}

// A poll has the most to read if many ticks are new to the replica, their records are on a minority of the nodes, and
// the last tick that was started had ten starts. Such a poll, and all polls of a minute if each of them fails, send a
// node no more requests than the package documentation says.
func TestRequestsOfTheLongestLook(t *testing.T) {
	race.SkipSweep(t)
	for _, fails := range []bool{false, true} {
		bubbleOf(t, fmt.Sprintf("fails=%v", fails), 30*time.Second, func(t *testing.T, w *world) {
			const period = 20 * time.Second
			again := []JobOption{AtLeastOnce(maxStarts), WithGrace(time.Hour)}

			var b *replica
			var called atomic.Bool
			b = w.replica("b", plan{schedule: Every(period), job: append(again, WithHost(func() {
				if called.Load() {
					_ = b.RunDue(t.Context())
				}
			}))})

			till(time.Minute + time.Second)
			if err := b.RunDue(t.Context()); err != nil { // b now knows all ticks so far
				t.Fatal(err)
			}

			a := w.replica("a", plan{schedule: Every(period), job: again, work: func(context.Context) error { panic("no paper") }})
			till(time.Minute + maxTicksUnderLease*period - time.Second) // by then the last tick has had all its starts

			a.end()
			w.nodes[0].RestartEmpty()
			w.nodes[1].RestartEmpty()
			time.Sleep(ttl + 5*time.Second) // the nodes vote again

			if due, _ := b.latest(time.Now()); len(b.unknownTicks(due, maxLookback)) != maxTicksUnderLease {
				t.Fatalf("%d ticks are unknown, want %d", len(b.unknownTicks(due, maxLookback)), maxTicksUnderLease)
			}

			var sent atomic.Int64
			before := len(w.ran())

			if !fails {
				countRequests(b.locks, &sent, nil)
				err := b.RunDue(t.Context())
				n := sent.Load() / int64(len(w.nodes))
				t.Logf("%d requests to a node", n)
				if n > lookRequests || err != nil || len(w.ran()) != before+1 {
					t.Errorf("%v; %d runs; want at most %d requests", err, len(w.ran())-before, lookRequests)
				}
				b.locks.Link.OnRequest(nil)
				return
			}

			// If scripts for starts get no answer, a record on a minority of the nodes cannot be completed.
			countRequests(b.locks, &sent, func(cmd redis.Cmder) bool {
				return isScript(cmd) && strings.Contains(fmt.Sprint(cmd.Args()...), "start")
			})

			var looks gauge
			b.gaugeLooks(&looks)
			called.Store(true)
			for range 3 {
				sent.Store(0)
				looks.total.Store(0)
				time.Sleep(time.Minute)
				n := sent.Load() / int64(len(w.nodes))
				t.Logf("%d requests to a node in %d looks", n, looks.total.Load())
				if n > worstRequests || looks.total.Load() > mostLooks {
					t.Errorf("want at most %d requests and %d looks", worstRequests, mostLooks)
				}
			}
			if len(w.ran()) != before {
				t.Errorf("%d runs", len(w.ran())-before)
			}
			b.locks.Link.OnRequest(nil)
		})
	}
}

// When a tick starts, the process does not read the records of the tick before again if it has run that tick itself,
// whether the function succeeded or failed.
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
