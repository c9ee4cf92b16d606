package main

import (
	"strings"
	"time"
)

// What happens around runs of cron jobs.

const lookTime = 2 * time.Second // a due tick starts within this time, as the package promises

var killedInTick = scene{name: "killed in a tick", takes: 40 * time.Second, rows: []*row{{
	what: "**A replica is killed during a cron tick**",
	promises: []promise{
		{ofCallers, "That tick does not start again, because it may have done its work", func(s seen, _ figures) finding {
			run, job := s.struckRun("once")
			if n := len(s.of(job, run.Tick)); n > 1 {
				return unsafe("started %d times", n)
			}
			if _, ok := s.nextStart(run, job); !ok {
				return bad("no later tick was started")
			}
			return good("started once")
		}},
		{ofCallers, "With [`AtLeastOnce`](recipes.md#once-a-day) another replica starts it again within # s", func(s seen, f figures) finding {
			run, job := s.struckRun("twice")
			again, ok := s.first(func(e event) bool {
				return e.Kind == isWork && e.Op == job && e.Tick.Equal(run.Tick) && e.Attempt == run.Attempt+1
			})
			if !ok {
				return bad("attempt %d was the last", run.Attempt)
			}
			return within(again.At.Sub(s.struck("twice")), 0, f[0])
		}},
		{ofCallers, "The job stays taken for # to # s, so a tick that falls due meanwhile is late", func(s seen, f figures) finding {
			run, job := s.struckRun("once")
			next, ok := s.nextStart(run, job)
			if !ok {
				return bad("no later tick was started")
			}
			return within(next.At.Sub(s.struck("once")), f[0], f[1]+lookTime)
		}},
	},
}}, play: func(p *play) error {
	once, twice := p.key("once"), p.key("twice")
	return inOrder(
		func() error {
			return p.everybody(order{Do: addJob, Op: once, Period: tickPeriod, Work: 4 * time.Second, Starts: 1})
		},
		func() error {
			// Three: the first kill may strike a run of this job, too.
			return p.everybody(order{Do: addJob, Op: twice, Period: tickPeriod, Work: 4 * time.Second, Starts: 3})
		},
		func() error {
			first, err := p.await("a run", patience, is(isWork, once))
			if err != nil {
				return err
			}
			p.strikes("once")
			return p.kill(first.Process)
		},
		func() error {
			// One of the others, or the same if that had both.
			run, err := p.await("a run", patience, is(isWork, twice))
			if err != nil {
				return err
			}
			p.strikes("twice")
			return p.kill(run.Process)
		},
		func() error { return p.sleep(20 * time.Second) },
	)
}}

// struckRun returns the run of a job in which its replica was killed, and the job's name.
func (s seen) struckRun(begin string) (event, string) {
	var run event
	job := s.named(begin)
	for _, e := range s.begins(job) {
		if e.At.Before(s.struck(begin)) {
			run = e
		}
	}
	return run, job
}

// of returns the starts of a tick.
func (s seen) of(job string, tick time.Time) []event {
	return s.all(func(e event) bool { return e.Kind == isWork && e.Op == job && e.Tick.Equal(tick) })
}

// nextStart returns the first start of a later tick.
func (s seen) nextStart(run event, job string) (event, bool) {
	return s.first(func(e event) bool { return e.Kind == isWork && e.Op == job && e.Tick.After(run.Tick) })
}

const (
	longRun     = 25 * time.Second
	shortPeriod = 2 * time.Second
)

var leaderCloses = scene{name: "leader closes", takes: 50 * time.Second, rows: []*row{{
	what: "**A leader with a long cron run shuts down**",
	promises: []promise{
		{ofHolder, "Its run goes on under the lease of its job until it ends", func(s seen, _ figures) finding {
			run, job := s.longRun()
			e, ok := s.first(func(e event) bool { return e.Kind == isDone && e.Op == job && e.Tick.Equal(run.Tick) })
			if !ok || e.Err != "" {
				return bad("it did not end by itself: %q", e.Err)
			}
			return within(e.At.Sub(run.At), longRun, longRun)
		}},
		{ofCallers, "Another process leads within a second", func(s seen, _ figures) finding {
			run, _ := s.longRun()
			e, ok := s.first(func(e event) bool {
				return e.Kind == isLeader && e.Process != run.Process && e.At.After(s.struck(""))
			})
			if !ok {
				return bad("nobody leads")
			}
			return within(e.At.Sub(s.struck("")), 0, time.Second)
		}},
		{ofCallers, "and starts the other jobs at their ticks", func(s seen, _ figures) finding {
			long, job := s.longRun()
			var ticks []int64
			for _, e := range s.begins(strings.TrimSuffix(job, "-long") + "-short") {
				if e.Process != long.Process && e.At.After(s.struck("")) {
					if late := e.At.Sub(e.Tick); late > lookTime+rounding {
						return bad("tick %s started %s late", e.Tick.Format(time.TimeOnly), seconds(late))
					}
					ticks = append(ticks, e.Tick.Unix())
				}
			}
			if len(ticks) == 0 || (ticks[len(ticks)-1]-ticks[0])/int64(shortPeriod.Seconds()) != int64(len(ticks)-1) {
				return bad("ticks %v", ticks)
			}
			return good("%d ticks, none left out", len(ticks))
		}},
		{ofCallers, "The job of the run starts nowhere until the run has ended", func(s seen, _ figures) finding {
			run, job := s.longRun()
			for _, e := range s.begins(job) {
				if e.At.After(run.At) && e.At.Before(run.At.Add(longRun-rounding)) {
					return unsafe("started on %s beside the run", e.Process)
				}
			}
			return good("not started")
		}},
	},
}}, play: func(p *play) error {
	group := p.key("group")
	return inOrder(
		func() error { return p.everybody(order{Do: lead, Op: group, Period: shortPeriod, Work: longRun}) },
		func() error {
			run, err := p.await("a long run", patience, is(isWork, group+"-long"))
			if err != nil {
				return err
			}
			if err := p.settle(); err != nil {
				return err
			}
			p.strikes("")
			return p.orders(run.Process, order{Do: resign, Op: group})
		},
		func() error {
			p.see(longRun+5*time.Second, is(isDone, group+"-long"))
			return p.sleep(2 * time.Second)
		},
	)
}}

// longRun returns the run of the long job in which its leader closed its Service.
func (s seen) longRun() (event, string) {
	e, _ := s.first(func(e event) bool { return e.Kind == isWork && strings.HasSuffix(e.Op, "-long") })
	return e, e.Op
}

var rolling = scene{name: "rolling", takes: 75 * time.Second, forgets: true, rows: []*row{{
	what: "**All nodes restart empty, one after the other, during a cron run**",
	promises: []promise{
		{ofHolder, "Notices nothing", func(s seen, _ figures) finding {
			e, ok := s.first(is(isDone, s.named("rolled")))
			if !ok || e.Err != "" {
				return bad("the run ended otherwise: %q", e.Err)
			}
			return good("ended by itself")
		}},
		{ofHolder, "It records the end of the run", notAgain},
		{ofCallers, "The tick does not start again, although no node has the record of its start any more", notAgain},
	},
	left: []left{{ofCallers, "If the replica dies before the end, the tick may start again", "a permission"}},
}}, play: func(p *play) error {
	job := p.key("rolled")
	// The tick is the latest one for long, and could still start.
	add := order{Do: addJob, Op: job, Period: time.Hour, Grace: time.Hour, Work: 52 * time.Second, Starts: 3}
	return inOrder(
		func() error { return p.everybody(add) },
		func() error { _, err := p.await("a run", patience, is(isWork, job)); return err },
		func() error { p.strikes(""); return restartEmpty(p, 0) },
		func() error { return p.sleep(16 * time.Second) }, // it is healed, and votes again
		func() error { return restartEmpty(p, 1) },
		func() error { return p.sleep(16 * time.Second) },
		func() error { return restartEmpty(p, 2) },
		func() error {
			p.see(40*time.Second, is(isDone, job))
			return p.sleep(14 * time.Second)
		},
	)
}}

// notAgain judges that the tick of a run was started once, and that all nodes were emptied meanwhile.
func notAgain(s seen, _ figures) finding {
	job := s.named("rolled")
	run, _ := s.first(is(isWork, job))
	if n := len(s.of(job, run.Tick)); n != 1 {
		return unsafe("started %d times", n)
	}
	if _, ok := s.first(is(isDone, job)); !ok {
		return bad("the run did not end")
	}
	return good("started once")
}

// scenes are all there are.
var scenes = []*scene{
	&paused, &killed, &cutOff, &oneNode, &twoEmpty, &allEmpty, &allPersistent, &single, &awayShort, &awayLong, &repeated,
	&outOfMemory, &nameMoves, &nonsense, &newNodes, &stuck, &closes, &killedInTick, &leaderCloses, &rolling, &workerKilled,
}

func rows(of []*scene) (all []*row) {
	for _, s := range of {
		all = append(all, s.rows...)
	}
	return all
}
