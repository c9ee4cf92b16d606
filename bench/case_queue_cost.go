package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/queuelock"
)

const (
	costRounds = 30
	costTasks  = 100 // in a slice

	goalCost = 150 * time.Microsecond
)

// A costEntrant is one server with a single worker, which does nothing but what asynq and queuelock do.
type costEntrant struct {
	name   string
	fleet  *fleet
	at     chan struct{} // the worker has come to the gate, a task that waits
	open   chan struct{}
	rounds []float64 // time per task, in ns
}

// queueCost measures what a task takes if nobody has its keys.
func queueCost(ctx context.Context, _ config) ([]section, error) {
	s := section{
		title: "What a task costs",
		text: fmt.Sprintf(`Tasks that do nothing and whose keys nobody holds, on a server with one worker: from one to the next. Peers take turns, %d
rounds of %d tasks; between its turns a worker sits in a task, so that no server polls an empty queue. Time and
"more than bare" are medians of the rounds, the latter of the differences within a round; in parentheses, quartiles.`, costRounds, costTasks),
	}
	t := table{head: []string{"peer", "time per task", "more than bare"}, text: 0}
	err := onNodes(2+queueNodes, 0, func(on *nodes) error {
		es, err := costEntrants(ctx, on.addrs())
		if err == nil {
			err = takeTurns(ctx, es)
		}
		for _, e := range es {
			err = errors.Join(err, e.close())
		}
		if err != nil {
			return err
		}
		for _, e := range es {
			more := e.moreThan(es[0])
			t.add(e.name, quartiles(e.rounds), quartiles(more))
			if e.name == costGoalFor {
				g := &goal{what: "a task, " + e.name + ": more than bare asynq", want: "≤ " + short(goalCost)}
				g.add(lockkitQueue, quartiles(more), median(more) <= float64(goalCost))
				s.goals = append(s.goals, g)
			}
		}
		return nil
	})
	s.add("", &t)
	return []section{s}, err
}

const costGoalFor = lockkitQueue + ", 1 node"

// costEntrants are on five servers: asynq's, a lock node alone, and three.
func costEntrants(ctx context.Context, addrs []string) (es []*costEntrant, err error) {
	one, three := addrs[1:2], addrs[2:]
	if err := errors.Join(provision(ctx, one), provision(ctx, three)); err != nil {
		return nil, err
	}
	for i, c := range []struct {
		name  string
		locks []string
		opts  []queuelock.Option
	}{
		{"bare asynq", nil, nil},
		{costGoalFor, one, nil},
		{lockkitQueue + ", 1 node, with a key", one, []queuelock.Option{byKey}},
		{lockkitQueue + ", 3 nodes", three, nil},
		{lockkitQueue + ", 3 nodes, with a key", three, []queuelock.Option{byKey}},
	} {
		e := &costEntrant{name: c.name, fleet: newFleet(addrs[0], fmt.Sprint("bench", i)), at: make(chan struct{}), open: make(chan struct{})}
		es = append(es, e)
		if err := e.fleet.add(1, c.locks, asynq.HandlerFunc(e.handle), c.opts...); err != nil {
			return es, err
		}
		if err := e.fleet.enqueue(ctx, gate); err != nil {
			return es, err
		}
		if err := e.fleet.start(); err != nil {
			return es, err
		}
		<-e.at
	}
	return es, nil
}

// close lets the worker leave the gate.
func (e *costEntrant) close() error {
	close(e.open)
	return e.fleet.close()
}

var gate = batch{kind: "gate", tasks: 1}

func (e *costEntrant) handle(_ context.Context, t *asynq.Task) error {
	if t.Type() == gate.kind {
		e.at <- struct{}{}
		<-e.open
	}
	return nil
}

// takeTurns measures round after round, of which the first is not counted. Nobody is always first.
func takeTurns(ctx context.Context, es []*costEntrant) error {
	for round := range costRounds + 1 {
		for i := range es {
			e := es[(round+i)%len(es)]
			took, err := e.turn(ctx, round)
			if err != nil {
				return err
			}
			if round > 0 {
				e.rounds = append(e.rounds, float64(took)/(costTasks+1))
			}
		}
	}
	return nil
}

// turn is from one gate to the next one, with tasks between them.
func (e *costEntrant) turn(ctx context.Context, round int) (time.Duration, error) {
	err := errors.Join(e.fleet.enqueue(ctx, batch{kind: fmt.Sprint("round ", round), tasks: costTasks}), e.fleet.enqueue(ctx, gate))
	if err != nil {
		return 0, err
	}
	runtime.GC() // nobody pays for what others left
	began := time.Now()
	e.open <- struct{}{}
	select {
	case <-e.at:
		return time.Since(began), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (e *costEntrant) moreThan(bare *costEntrant) []float64 {
	more := slices.Clone(e.rounds)
	for i := range more {
		more[i] -= bare.rounds[i]
	}
	return more
}

// quartiles are a median and what half of the rounds are within.
func quartiles(rounds []float64) string {
	sorted := slices.Sorted(slices.Values(rounds))
	at := func(q int) string {
		return fmt.Sprintf("%.0f µs", sorted[q*(len(sorted)-1)/4]/1e3)
	}
	return fmt.Sprintf("%.0f µs (%s to %s)", median(sorted)/1e3, at(1), at(3))
}
