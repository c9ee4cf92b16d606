package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	hotTasks = 30
	hotWork  = 100 * time.Millisecond
	hotLimit = 30 * time.Second
	hotMost  = 2 // times the work alone
)

// hotKey has two workers and nothing but tasks about one order, of which one can run at a time.
func hotKey(ctx context.Context, p *play, _ plan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, hotLimit, errOutOfTime)
	defer cancel()
	fmt.Printf("a hot key: %d tasks of %v about one order; two worker processes\n", hotTasks, hotWork)
	for range hotTasks {
		if err := p.enqueue(ctx, "hot", hotWork); err != nil {
			return err
		}
	}
	for _, name := range []string{"alice", "bob"} {
		if err := p.crew.hire(name); err != nil {
			return err
		}
	}
	err := p.finish(ctx)
	took, alone := p.ledger.pace()
	n := p.ledger.tally()
	fmt.Printf("%d of them done; from the first to the last %v, the work alone takes %v: %.1f times as long, at most %d\n",
		n.once, took.Round(time.Millisecond), alone.Round(time.Millisecond), took.Seconds()/alone.Seconds(), hotMost)
	return errors.Join(err, p.ledger.check(), tooSlow(took, alone))
}

// tooSlow is the verdict on the pauses between tasks.
func tooSlow(took, alone time.Duration) error {
	if took <= hotMost*alone {
		return nil
	}
	return fmt.Errorf("the tasks of a hot key took %.1f times as long as their work, more than %d times", took.Seconds()/alone.Seconds(), hotMost)
}
