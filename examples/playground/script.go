package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// An act is something that goes wrong for a while, and is right again when it returns.
type act struct {
	name string
	play func(context.Context) error
}

// actLength is how long things stay wrong: longer than a lease.
const actLength = ttl + ttl/5

// acts are all of them, about replicas and nodes that chance has chosen.
func (p *playground) acts(chance *rand.Rand) []act {
	replica := func() string { return replicaNames[chance.IntN(len(replicaNames))] }
	node := func() *int { return new(chance.IntN(nodeCount)) }
	r, i := replica(), node()
	both := func(name string, do, undo Command) act {
		return act{name, func(ctx context.Context) error {
			if err := p.do(do); err != nil {
				return err
			}
			err := stage.Sleep(ctx, actLength)
			return errors.Join(err, p.do(undo))
		}}
	}
	once := func(name string, do Command) act {
		return act{name, func(ctx context.Context) error { return errors.Join(p.do(do), stage.Sleep(ctx, actLength)) }}
	}
	return []act{
		both("kill", Command{Do: "kill", Replica: r}, Command{Do: "restart", Replica: r}),
		both("pause", Command{Do: "pause", Replica: r}, Command{Do: "resume", Replica: r}),
		both("skew", Command{Do: "skew", Replica: r, Ms: float64(chance.IntN(1200) - 600)}, Command{Do: "skew", Replica: r}),
		both("node_kill", Command{Do: "node_kill", Node: i}, Command{Do: "node_restart", Node: i}),
		both("node_pause", Command{Do: "node_pause", Node: i}, Command{Do: "node_resume", Node: i}),
		both("node_cut", Command{Do: "node_cut", Node: i}, Command{Do: "node_mend", Node: i}),
		both("node_cut from one", Command{Do: "node_cut", Node: i, Replica: r}, Command{Do: "node_mend", Node: i}),
		both("node_slow", Command{Do: "node_slow", Node: i, Ms: 150}, Command{Do: "node_mend", Node: i}),
		once("node_restart_empty", Command{Do: "node_restart_empty", Node: i}),
		once("node_flush", Command{Do: "node_flush", Node: i}),
	}
}

// play plays acts at random, with bursts in between, until the time is over; first of all the scenarios for which
// something is turned off.
func (p *playground) play(ctx context.Context, length time.Duration, chance *rand.Rand) error {
	end := time.Now().Add(length)
	all := p.acts(chance)
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	p.mu.Lock()
	off := p.unsafe
	p.mu.Unlock()
	guard, fence := act{"guard", p.scenarios()["guard"]}, act{"fence", p.scenarios()["fence"]}
	if off.Fencing {
		all = slices.Insert(all, 0, fence)
	} else {
		all = append(all, fence)
	}
	if off.Guard {
		all = slices.Insert(all, 0, guard)
	} else {
		all = append(all, guard)
	}
	for n := 0; n == 0 || time.Until(end) > actLength; n++ {
		if n > 0 && n%len(all) == 0 { // other victims
			again := p.acts(chance)
			all = append(again, guard, fence)
			n = 0
		}
		for _, burst := range []Command{{Do: "burst_http", N: 30}, {Do: "burst_tasks", N: 5}} {
			if err := ignoreRefusal(p.do(burst)); err != nil {
				return err
			}
		}
		if err := all[n].play(ctx); errors.Is(err, errTooSlow) {
			p.scene("%s: %v", all[n].name, err)
		} else if err := ignoreRefusal(err); err != nil {
			return fmt.Errorf("%s: %w", all[n].name, err)
		}
	}
	return stage.Sleep(ctx, time.Until(end))
}

// ignoreRefusal is for when somebody at the page was quicker, or the system cannot pause processes.
func ignoreRefusal(err error) error {
	if _, refused := errors.AsType[refusal](err); refused {
		return nil
	}
	return err
}

// chaosLength is how long the scenario takes.
const chaosLength = 30 * time.Second

func (p *playground) chaos(ctx context.Context) error {
	return p.play(ctx, chaosLength, rand.New(rand.NewPCG(rand.Uint64(), 0)))
}

// check returns an error unless nothing was broken, and everything has moved.
func (s State) check() error {
	errs := s.lacks()
	if !s.Verdict.OK {
		errs = append(errs, errors.New(s.Verdict.Text))
	}
	return errors.Join(errs...)
}

// lacks says of what there is nothing to judge.
func (s State) lacks() (errs []error) {
	c := s.Counters
	for what, n := range map[string]int{"grants": c.Grants, "runs of the job": c.Runs, "tasks completed": c.Completed, "updates": c.Updates} {
		if n == 0 {
			errs = append(errs, fmt.Errorf("no %s: there was nothing to judge", what))
		}
	}
	return errs
}
