package queuelock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

const half = 30 * time.Second

// Three replicas, whose idea of the time differs, enqueue each tick once, and two servers process it once.
func TestSchedulersEnqueueOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for range 2 {
			r.serve(setup{}, r.note)
		}
		r.untilNext(half, 10*time.Second)
		want := ticksFrom(time.Now(), half, 20)
		for _, off := range []time.Duration{350 * time.Millisecond, -350 * time.Millisecond, 5 * time.Second} {
			r.replica(off, half)
		}
		r.pass(20 * half)
		r.wantOnce(want)
		if r.count(EventTickEnqueued) != 20 || r.count(EventDuplicate)+r.count(EventTickMissed)+r.count(EventUnstamped) > 0 {
			t.Errorf("events %v\n%s", r.events.Counts(), &r.logs)
		}
	})
}

// The same with asynq's own, which enqueues each tick on each replica: the control.
func TestSchedulersOfAsynqEnqueueThrice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for range 2 {
			r.serve(setup{}, r.note)
		}
		for range 3 {
			s := asynq.NewSchedulerFromRedisClient(r.dialQueue(), &asynq.SchedulerOpts{Logger: silent{}, LogLevel: asynq.FatalLevel})
			if _, err := s.Register("@every 30s", asynq.NewTask("task", nil)); err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
		}
		r.pass(20*half + 10*time.Second)
		if n := len(r.ledger.runs); n != 3*20 {
			t.Errorf("%d tasks of 20 ticks", n)
		}
	})
}

// Ticks are due by the nodes' clocks, whatever that of the replica says. Where nodes have not answered before, the first may
// be late by as much as its clock is behind, and is not early.
func TestTicksByTheClockOfTheNodes(t *testing.T) {
	for _, ahead := range []time.Duration{-350 * time.Millisecond, 0, 350 * time.Millisecond} {
		for _, before := range []time.Duration{10 * time.Second, time.Second} {
			t.Run(fmt.Sprint(ahead, before), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) { byTheNodes(t, r, ahead, before) })
			})
		}
	}
}

// byTheNodes starts replicas so long before a tick, while the nodes' clocks are ahead.
func byTheNodes(t *testing.T, r *rig, ahead, before time.Duration) {
	for _, n := range r.nodes {
		n.StepClock(ahead)
	}
	var arrived moments
	arrived.watch(r)
	first := r.untilNext(half, before)
	for range 3 {
		r.replica(0, half, core.WithClockWindow(500*time.Millisecond))
	}
	r.pass(4*half + 20*time.Second)
	for i := range 5 {
		at, latest := first.Add(time.Duration(i)*half), 100*time.Millisecond
		if i == 0 && before == time.Second {
			latest += max(ahead, 0)
		}
		if late := arrived.of[tickID(at)].Add(ahead).Sub(at); late < 0 || late > latest {
			t.Errorf("%v was enqueued %v after its time", at, late)
		}
	}
}

// A replica whose clock the nodes refuse leaves the ticks to the others, and says so only where there are none.
func TestRefusedReplicaLeavesTicks(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, n := range r.nodes {
			n.StepClock(200 * time.Millisecond)
		}
		r.untilNext(half, 10*time.Second)
		want := ticksFrom(time.Now(), half, 10)
		var others []*replica
		for range 2 {
			others = append(others, r.replica(0, half, core.WithClockWindow(500*time.Millisecond)))
		}
		r.replica(0, half, core.WithClockWindow(20*time.Millisecond))
		r.pass(10 * half)
		r.serve(setup{bare: true}, r.note)
		for _, o := range others {
			o.Shutdown()
		}
		r.pass(10 * time.Second) // what the refused one tries last has not been given up
		r.wantOnce(want)
		if n := r.count(EventTickMissed); n > 0 || r.logs.count("ERROR") > 0 {
			t.Errorf("%d ticks missed\n%s", n, &r.logs)
		}
		missed := ticksFrom(time.Now(), half, 3)
		r.pass(4 * half)
		r.wantOnce(want)
		for _, id := range missed {
			at := id[len(id)-len(time.RFC3339)+5:]
			if r.logs.count("ERROR queuelock: a tick was not enqueued") != r.count(EventTickMissed) || r.logs.count("tick="+at) != 1 {
				t.Errorf("%s: events %v\n%s", at, r.events.Counts(), &r.logs)
			}
		}
	})
}

// While no quorum of nodes answers nothing is enqueued; a tick that waits is enqueued when they are back, unless the next one
// is due by then. That is said by every replica.
func TestTickWhileNodesAreDown(t *testing.T) {
	for down, missed := range map[time.Duration]int{15 * time.Second: 0, 45 * time.Second: 1, 75 * time.Second: 2} {
		t.Run(fmt.Sprint(down), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) { r.nodesDown(down, missed) })
		})
	}
}

// nodesDown takes nodes down shortly before a tick.
func (r *rig) nodesDown(down time.Duration, missed int) {
	r.serve(setup{bare: true}, r.note)
	first := r.untilNext(half, 5*time.Second)
	for range 3 {
		r.replica(0, half)
	}
	r.pass(time.Second)
	want := ticksFrom(time.Now(), half, 6)
	for _, n := range r.nodes[:2] {
		n.Down()
	}
	r.pass(down)
	for _, n := range r.nodes[:2] {
		n.Up()
	}
	r.pass(6*half - down)
	r.wantOnce(want[missed:])
	if r.count(EventTickMissed) != 3*missed {
		r.t.Errorf("events %v\n%s", r.events.Counts(), &r.logs)
	}
	for i := range missed {
		at := first.Add(time.Duration(i) * half).UTC().Format(time.RFC3339)
		if r.logs.count("tick="+at) != 3 {
			r.t.Errorf("%s:\n%s", at, &r.logs)
		}
	}
}

// A replica dies after it has enqueued, before that is recorded, or before it has enqueued: another one takes over, and
// the tick is processed once, also if it was completed meanwhile.
func TestReplicaDiesAtATick(t *testing.T) {
	for name, c := range map[string]fall{
		"before":                      {true, true, 0},
		"after, and the task waits":   {false, false, 0},
		"after, and the task is gone": {false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) { r.replicaDies(c) })
		})
	}
}

type fall struct {
	unsent     bool // it dies before
	served     bool // the task is completed within the TTL of its lease
	duplicates int
}

func (r *rig) replicaDies(c fall) {
	if c.served {
		r.serve(setup{adjust: func(c *asynq.Config) { c.TaskCheckInterval = 200 * time.Millisecond }}, r.note)
	}
	r.untilNext(half, 10*time.Second)
	want := ticksFrom(time.Now(), half, 3)
	var once sync.Once
	for range 3 {
		p := r.replica(0, half)
		p.onEnqueue(func() (a testutil.Action) {
			once.Do(func() {
				a.DropRequest = c.unsent
				p.locks.Link.Kill()
				time.AfterFunc(time.Second, p.end)
			})
			return a
		})
	}
	r.pass(3 * half)
	if !c.served {
		if got := r.pending(); len(got) != 3 {
			r.t.Errorf("%d tasks of 3 ticks wait: %v", len(got), got)
		}
		r.serve(setup{}, r.note)
		r.pass(half)
		want = append(want, ticksFrom(time.Now().Add(-half), half, 1)...)
	}
	r.wantOnce(want)
	if r.count(EventDuplicate) != c.duplicates || r.count(EventTickMissed) > 0 {
		r.t.Errorf("events %v\n%s", r.events.Counts(), &r.logs)
	}
}

// Property: while replicas die at random moments, lose answers and are replaced, and one lives on, each tick is processed once.
func TestSchedulersAndRandomKills(t *testing.T) {
	seeds := uint64(5)
	if race.Enabled {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				random := rand.New(rand.NewPCG(seed, 1))
				for range 2 {
					r.serve(setup{}, r.note)
				}
				r.untilNext(10*time.Second, time.Second)
				start := time.Now()
				r.replica(0, 10*time.Second)
				mortal := []*replica{r.replica(0, 10*time.Second), r.replica(0, 10*time.Second)}
				for range 30 {
					r.untilNext(10*time.Second, time.Millisecond)
					i := random.IntN(2)
					p := mortal[i]
					switch random.IntN(3) {
					case 0:
						p.queue.Lose(random.IntN(3))
					case 1:
						p.locks.Link.Lose(random.IntN(8))
					}
					r.pass(time.Duration(random.IntN(60)) * time.Millisecond)
					p.die()
					mortal[i] = r.replica(time.Duration(random.IntN(700)-350)*time.Millisecond, 10*time.Second)
				}
				r.untilNext(10*time.Second, time.Second)
				n := int(time.Since(start) / (10 * time.Second))
				r.wantOnce(ticksFrom(start, 10*time.Second, n))
				if r.count(EventTickMissed) > 0 {
					t.Errorf("events %v\n%s", r.events.Counts(), &r.logs)
				}
			})
		})
	}
}

// A tick waits for nodes for ten minutes at most.
func TestPatienceOfATick(t *testing.T) {
	race.Campaign(t)
	for down, want := range map[time.Duration]int{patience - time.Minute: 1, patience + time.Minute: 0} {
		t.Run(fmt.Sprint(down), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.untilNext(time.Hour, time.Second)
				r.replica(0, time.Hour)
				for _, n := range r.nodes[:2] {
					n.Down()
				}
				r.pass(down)
				for _, n := range r.nodes[:2] {
					n.Up()
				}
				r.pass(time.Minute)
				if n := r.count(EventTickEnqueued); n != want || r.count(EventTickMissed) != 1-want {
					t.Errorf("events %v\n%s", r.events.Counts(), &r.logs)
				}
			})
		})
	}
}

// A process that slept over three ticks does not make up for them, and says so once, unless others have enqueued them.
func TestReplicaSleeps(t *testing.T) {
	const period = 5 * time.Minute
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{}, r.note)
				at := r.untilNext(period, time.Minute)
				p := r.replica(0, period)
				for range others {
					r.replica(0, period)
				}
				now := time.Now()
				p.slept.Store(&now)
				r.pass(12 * time.Minute)
				p.slept.Store(nil)
				r.pass(2 * time.Minute)
				var want []string
				for i := range 3 * others {
					want = append(want, tickID(at.Add(time.Duration(i)*period)))
				}
				r.wantOnce(want)
				if n := r.count(EventTickMissed); n != 1-others {
					t.Errorf("events %v\n%s", r.events.Counts(), &r.logs)
				}
				r.pass(period)
				r.wantOnce(append(want, tickID(at.Add(3*period))))
			})
		})
	}
}

// A clock that is set, forth or back, brings no tick twice, and loses none for long.
func TestClockOfAReplicaIsSet(t *testing.T) {
	for _, off := range []time.Duration{time.Minute, -time.Minute, 30 * 24 * time.Hour} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{}, r.note)
				p := r.idleReplica()
				if _, err := p.RegisterAs("entry", "@every 5m", asynq.NewTask("task", nil)); err != nil {
					t.Fatal(err)
				}
				at := r.untilNext(5*time.Minute, 4*time.Minute)
				p.off.Store(int64(off))
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				r.pass(90 * time.Second)
				p.off.Store(0)
				r.pass(15 * time.Minute)
				r.wantOnce([]string{tickID(at), tickID(at.Add(5 * time.Minute)), tickID(at.Add(10 * time.Minute))})
			})
		})
	}
}

// With asynq.Unique a tick is left out while the one before is in the queue, on all replicas.
func TestTickOfAUniqueTask(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.untilNext(half, time.Second)
		for range 3 {
			p := r.idleReplica()
			if _, err := p.Register("@every 30s", asynq.NewTask("task", nil, asynq.Unique(time.Hour))); err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(5 * half)
		if got := r.pending(); len(got) != 1 || r.count(EventTickEnqueued) != 1 || r.count(EventTickMissed) > 0 {
			t.Errorf("%v, events %v", got, r.events.Counts())
		}
	})
}

// The identity of a scheduled task is its tick, also where WithIdentity finds the same in all payloads.
func TestTicksHaveAnIdentity(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{WithIdentity(ByPayloadField("tenant"))}}, r.note)
		r.untilNext(half, time.Second)
		p := r.idleReplica()
		want := ticksFrom(time.Now(), half, 3)
		if _, err := p.RegisterAs("entry", "@every 30s", asynq.NewTask("task", []byte(`{"tenant":7}`), asynq.MaxRetry(3))); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		r.pass(3 * half)
		r.wantOnce(want)
	})
}

// Entries come and go while the scheduler runs; several on one instant do not hold up each other.
func TestEntriesComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.untilNext(half, time.Second)
		p := r.replica(0, half)
		payload := func(i int) *asynq.Task { return asynq.NewTask("task", fmt.Append(nil, i)) }
		var ids []string
		for i := range 3 {
			id, err := p.Register("@every 30s", payload(i), asynq.Queue("other"))
			if err != nil || slices.Contains(ids, id) {
				t.Fatal(id, err)
			}
			ids = append(ids, id)
		}
		r.pass(10 * time.Second)
		tasks, err := r.inspector.ListPendingTasks("other")
		if got := r.pending(); err != nil || len(tasks) != 3 || len(got) != 1 {
			t.Errorf("%v, %v, %v", tasks, got, err)
		}
		for _, id := range append(ids, "entry") {
			if err := p.Unregister(id); err != nil {
				t.Error(err)
			}
			if err := p.Unregister(id); err == nil {
				t.Error("unregistered twice")
			}
		}
		r.pass(half)
		if tasks, _ = r.inspector.ListPendingTasks("other"); len(tasks) != 3 || len(r.pending()) != 1 {
			t.Errorf("%v, %v", tasks, r.pending())
		}
	})
}
