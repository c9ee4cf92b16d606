// Quickstart shows three contenders taking turns on one lock over five Redis
// nodes, while one node is killed and another one loses its memory.
//
//	go run ./examples/quickstart
//
// It uses redis-server where that is on PATH and embedded nodes otherwise. The
// exit status is 0 if nothing of what the lock promises was broken.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lockkit/lockkit/examples/internal/newnodes"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/history"
)

const (
	key = "the register"
	ttl = 2 * time.Second // short, so that the quarantine of an emptied node ends while we look

	killed  = 4 // the node that dies
	emptied = 1 // the node that loses its memory
)

func main() { stage.Run("quickstart", run) }

func run(ctx context.Context) error {
	nodes, err := testutil.StartNodes(5)
	if err != nil {
		return err
	}
	defer nodes.Close()

	var (
		history history.History
		times   = newTimeline(os.Stdout)
		reg     = &register{history: &history}
		score   = &score{names: []string{"alice", "bob", "carol"}}
	)
	contenders, err := newContenders(nodes.URLs(), score, times, reg, &history)
	if err != nil {
		return err
	}
	// The nodes are known to be new: without this they would sit out the quarantine of the restart guard.
	if err := newnodes.Declare(ctx, contenders[0].locker); err != nil {
		return errors.Join(err, closeAll(contenders))
	}

	fmt.Printf("five nodes: %s; three contenders, each with its own clients\n\n", nodes.Kind)
	turns := make(chan error, 1)
	go func() { turns <- takeTurns(ctx, contenders) }()
	err = faults(ctx, nodes, times, score)
	times.print("demo", "ends", "holders finish, waiters go home")
	err = errors.Join(err, closeAll(contenders), <-turns)
	if err == nil {
		err = errors.Join(reg.check(times), score.check())
	}
	fmt.Printf("\n%s\n%s", score, history.Report())
	return errors.Join(err, history.Check())
}

// faults is the plot. It returns when the demo is over.
func faults(ctx context.Context, nodes *testutil.Nodes, times *timeline, score *score) error {
	score.scene("all five nodes up")
	if err := stage.Sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	nodes.Kill(killed)
	times.print("NODE", "killed", "node %d; four of five are left, three are a quorum", killed)
	score.scene("one killed")
	if err := stage.Sleep(ctx, 2500*time.Millisecond); err != nil {
		return err
	}
	if err := nodes.RestartEmpty(emptied); err != nil {
		return err
	}
	times.print("NODE", "emptied", "node %d; it must not vote for %v, the max TTL: it may have forgotten a lease", emptied, ttl)
	score.scene("another one emptied")
	return stage.Sleep(ctx, 5*time.Second)
}

// takeTurns runs the contenders until they are closed, or one of them fails.
func takeTurns(ctx context.Context, contenders []*contender) error {
	errs := make([]error, len(contenders))
	var all sync.WaitGroup
	for i, c := range contenders {
		all.Go(func() { errs[i] = c.run(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// closeAll waits for the turns under way and refuses new ones.
func closeAll(contenders []*contender) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*ttl)
	defer cancel()
	errs := make([]error, len(contenders))
	var all sync.WaitGroup
	for i, c := range contenders {
		all.Go(func() { errs[i] = c.locker.Close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
