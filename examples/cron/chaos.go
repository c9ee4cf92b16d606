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

var chaosMembers = []member{{"a", 0}, {"b", 350 * time.Millisecond}, {"c", -3 * time.Second}, {"d", 5 * time.Second}}

const second, five = time.Second, 5 * time.Second

var chaosJobs = []job{
	{name: "pulse", period: second, attempts: 1, hosted: true},
	{name: "pulse3", period: second, attempts: 3},
	{name: "slow", period: second, work: 1500 * time.Millisecond, attempts: 1},
	{name: "slow3", period: second, work: 1500 * time.Millisecond, attempts: 3, hosted: true},
	{name: "five", period: five, attempts: 1},
	{name: "five3", period: five, attempts: 3, hosted: true},
	{name: "long", period: five, work: 3 * time.Second, attempts: 1, hosted: true},
	{name: "long3", period: five, work: 3 * time.Second, attempts: 3},
}

const (
	chaosTTL = 4 * time.Second
	// One is dead and one stopped at most: two are well, and so are two nodes, since one has what it forgot behind it
	// before the next forgets.
	killEvery, deadFor    = 5 * time.Second, 3 * time.Second
	stopEvery, stopFor    = 9 * time.Second, 6 * time.Second
	emptyFirst, emptyNext = 15 * time.Second, 20 * time.Second
	// drain is for what the last faults have left behind.
	drain = chaosTTL + margin + five + 5*time.Second
)

// chaos makes all faults happen, and judges.
func chaos(ctx context.Context, begin time.Time, length time.Duration, rs *replicas, nodes *testutil.Nodes) error {
	f := &faults{replicas: rs, nodes: nodes}
	err := errors.Join(f.run(ctx, begin, length), stage.Sleep(ctx, drain))
	end := time.Now()
	err = errors.Join(err, rs.stop())
	fmt.Printf("\n%d kills, %d stops, %d nodes emptied\n\n", len(rs.rec.these(isKilled)), len(rs.rec.these(isStopped)), len(rs.rec.these(isEmptied)))
	var judges []*judge
	for _, j := range chaosJobs {
		judge := newJudge(rs.rec.kept.All(), j, rs.mode, begin, end)
		judges = append(judges, judge)
		err = errors.Join(err, judge.check())
	}
	fmt.Print(sums(judges))
	if err != nil {
		return errors.Join(err, rs.rec.save())
	}
	fmt.Println("\nverdict: no tick was started too often, early, out of order or beside a run, none that was started was forgotten, and no job waited for long")
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
