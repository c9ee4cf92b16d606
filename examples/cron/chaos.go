package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

var chaosMembers = []member{{"a", 0}, {"b", 0}, {"c", 350 * time.Millisecond}, {"d", -350 * time.Millisecond}, {"e", 5 * time.Second}}

// Replicas ask for no tick that is older than the grace by much, and nodes are emptied further apart than that: so no two
// of them forget what is asked for, and once can be promised.
const chaosGrace = 20 * time.Second

var chaosJobs = []job{
	{name: "pulse", crontab: "* * * * * *", period: time.Second, attempts: 1, grace: chaosGrace},
	{name: "slow", crontab: "* * * * * *", period: time.Second, work: 1500 * time.Millisecond, attempts: 1, grace: chaosGrace},
	{name: "report", crontab: "*/2 * * * * *", period: 2 * time.Second, work: time.Second, attempts: 3, grace: chaosGrace},
}

const (
	killEvery, deadFor    = 7 * time.Second, 3 * time.Second
	stopEvery, stopFor    = 9 * time.Second, 6 * time.Second
	emptyFirst, emptyNext = 20 * time.Second, 40 * time.Second
	// drain is for what the last faults have left behind: first starts, as far as the grace allows, and runs again.
	drain = chaosGrace + 5*time.Second
)

// chaos has all faults take their course, and judges.
func chaos(ctx context.Context, begin time.Time, length time.Duration, rs *replicas, nodes *testutil.Nodes) error {
	f := &faults{replicas: rs, nodes: nodes}
	err := f.run(ctx, begin, length)
	end := time.Now() // ticks from here on are not asked for
	err = errors.Join(err, stage.Sleep(ctx, drain), rs.stop())
	fmt.Printf("\n%s", faultCounts(rs.rec))
	for _, j := range chaosJobs {
		judge := newChaosJudge(rs.rec, j, rs.mode.elector, begin, end)
		fmt.Print(judge.report())
		err = errors.Join(err, judge.check())
	}
	if err != nil {
		return errors.Join(err, rs.rec.save())
	}
	fmt.Println("\nverdict: no tick started too often, none was left out but as the policies allow, and no runs overlapped")
	return nil
}

// faults are what happens to replicas and nodes.
type faults struct {
	*replicas
	nodes   *testutil.Nodes
	dead    string // killed, and not yet started again
	stopped string // by SIGSTOP
	emptied int    // so many nodes
}

// run returns when all faults are over.
func (f *faults) run(ctx context.Context, begin time.Time, length time.Duration) error {
	type step struct {
		at time.Duration
		do func() error
	}
	var steps []step
	for t := killEvery; t < length; t += killEvery {
		steps = append(steps, step{t, f.killOne}, step{t + deadFor, f.startAgain})
	}
	for t := stopEvery; t < length; t += stopEvery {
		steps = append(steps, step{t, f.stopOne}, step{t + stopFor, f.goOn})
	}
	for t := emptyFirst; t < length; t += emptyNext {
		steps = append(steps, step{t, f.emptyOne})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	for _, s := range steps {
		if err := stage.Sleep(ctx, time.Until(begin.Add(s.at))); err != nil {
			return err
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	return stage.Sleep(ctx, time.Until(begin.Add(length)))
}

// victim is a replica that is not dead: every other time the one that was the last to start a run, or else a random one.
func (f *faults) victim() string {
	names := make([]string, 0, len(chaosMembers))
	for _, m := range chaosMembers {
		if m.name != f.dead {
			names = append(names, m.name)
		}
	}
	if runs := f.rec.these(runStarts); len(runs) > 0 && rand.N(2) == 0 {
		if last := runs[len(runs)-1].Replica; last != f.dead {
			return last
		}
	}
	return names[rand.N(len(names))]
}

func (f *faults) killOne() error {
	f.dead = f.victim()
	if f.dead == f.stopped {
		f.stopped = ""
	}
	return f.kill(f.dead, "")
}

func (f *faults) startAgain() error {
	i := slices.IndexFunc(chaosMembers, func(m member) bool { return m.name == f.dead })
	f.dead = ""
	return f.start(chaosMembers[i])
}

func (f *faults) stopOne() error {
	f.stopped = f.victim()
	f.rec.add(event{Replica: f.stopped, Kind: isStopped, At: time.Now()})
	return f.all[f.stopped].Pause()
}

func (f *faults) goOn() error {
	if f.stopped == "" { // killed meanwhile
		return nil
	}
	f.rec.add(event{Replica: f.stopped, Kind: goesOn, At: time.Now()})
	err := f.all[f.stopped].Resume()
	f.stopped = ""
	return err
}

func (f *faults) emptyOne() error {
	i := f.emptied % len(f.nodes.Addrs)
	f.emptied++
	f.rec.add(event{Kind: isEmptied, At: time.Now(), Text: f.nodes.Addrs[i]})
	return f.nodes.RestartEmpty(i)
}
