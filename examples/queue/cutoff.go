package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	cutOffTasks = 240
	cutOffWork  = 100 * time.Millisecond
	cutOffLimit = 30 * time.Second
	cutOffMost  = cutOffTasks / 3 // deliveries that the worker without locks may take
)

// nowhere are addresses at which nobody listens.
var nowhere = []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"}

// cutOff has two workers, one of which reaches asynq but no lock.
func cutOff(ctx context.Context, p *play, _ plan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cutOffLimit, errOutOfTime)
	defer cancel()
	fmt.Printf("a worker without locks: %d tasks of %v, each about an order of its own; alice, and bob, who cannot reach the lock nodes\n", cutOffTasks, cutOffWork)
	for i := range cutOffTasks {
		if err := p.enqueue(ctx, strconv.Itoa(i), cutOffWork); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := errors.Join(p.crew.hireWith("bob", nowhere), p.crew.hire("alice")); err != nil {
		return err
	}
	bob := p.crew.workers[0].life
	err := p.drain(ctx)
	took := p.ledger.takenBy(bob)
	fmt.Printf("%d of them done after %v; bob took %d, at most %d\n", p.ledger.tally().once, time.Since(began).Round(time.Millisecond), took, cutOffMost)
	if err == nil {
		err = p.crew.dismiss()
	}
	return errors.Join(err, p.ledger.check(), tookTooMany(took))
}

// tookTooMany is the verdict on what a worker without locks takes from the others.
func tookTooMany(took int) error {
	if took <= cutOffMost {
		return nil
	}
	return fmt.Errorf("the worker without locks took %d of %d tasks, more than %d", took, cutOffTasks, cutOffMost)
}
