package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// kills has three workers, which are killed at random.
func kills(ctx context.Context, s *stage, plan plan) error {
	fmt.Printf("%d tasks about %d orders; three worker processes; four nodes, %s\n", plan.tasks, plan.orders, s.kind)
	for _, name := range []string{"alice", "bob", "carol"} {
		if err := s.crew.hire(name); err != nil {
			return err
		}
	}
	produced := make(chan error, 1)
	go func() { produced <- s.produce(ctx, plan) }()
	err := s.crew.killAtRandom(ctx, s.queue, plan.kills)
	err = errors.Join(err, <-produced)
	if err == nil {
		err = s.finish(ctx)
	}
	fmt.Print("\n", s.ledger)
	return errors.Join(err, s.ledger.check())
}

// produce enqueues all tasks, some at once and the others one by one.
func (s *stage) produce(ctx context.Context, plan plan) error {
	for i := range plan.tasks {
		if i > plan.tasks/4 {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		work := time.Duration(50+rand.IntN(500)) * time.Millisecond
		if err := s.enqueue(ctx, strconv.Itoa(i%plan.orders), work); err != nil {
			return err
		}
	}
	return nil
}
