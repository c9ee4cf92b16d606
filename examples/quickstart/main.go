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
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/testutil/history"
	"github.com/redis/go-redis/v9/logging"
)

const (
	key = "the register"
	ttl = 2 * time.Second // short, so that the quarantine of an emptied node ends while we look

	killed  = 4 // the node that dies
	emptied = 1 // the node that loses its memory
)

func main() {
	logging.Disable() // go-redis prints each failed dial; what a node's failure means, the Lockers say
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nodes, err := startNodes(5)
	if err != nil {
		return err
	}
	defer nodes.close()

	var (
		history history.History
		times   = newTimeline(os.Stdout)
		reg     = &register{history: &history}
		score   = &score{names: []string{"alice", "bob", "carol"}}
	)
	contenders, err := newContenders(nodes, score, times, reg, &history)
	if err != nil {
		return err
	}
	// The nodes are known to be new: without this they would sit out the quarantine of the restart guard.
	if err := contenders[0].locker.Provision(ctx); err != nil {
		return errors.Join(err, closeAll(contenders))
	}

	fmt.Printf("five nodes: %s; three contenders, each with its own clients\n\n", nodes.kind)
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
func faults(ctx context.Context, nodes *nodes, times *timeline, score *score) error {
	score.scene("all five nodes up")
	if err := sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	nodes.all[killed].Kill()
	times.print("NODE", "killed", "node %d; four of five are left, three are a quorum", killed)
	score.scene("one killed")
	if err := sleep(ctx, 2500*time.Millisecond); err != nil {
		return err
	}
	if err := nodes.all[emptied].RestartEmpty(); err != nil {
		return err
	}
	times.print("NODE", "emptied", "node %d; it must not vote for %v, the max TTL: it may have forgotten a lease", emptied, ttl)
	score.scene("another one emptied")
	return sleep(ctx, 5*time.Second)
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

// sleep returns early, with an error, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
