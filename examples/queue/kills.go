package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// kills has three workers, which are killed at random.
func kills(ctx context.Context, p *play, plan plan) error {
	fmt.Printf("%d tasks about %d orders; three worker processes; four nodes, %s\n", plan.tasks, plan.orders, p.kind)
	for _, name := range []string{"alice", "bob", "carol"} {
		if err := p.crew.hire(name); err != nil {
			return err
		}
	}
	produced := make(chan error, 1)
	go func() { produced <- p.produce(ctx, plan) }()
	err := p.crew.killAtRandom(ctx, p.queue, plan.kills)
	err = errors.Join(err, <-produced)
	if err == nil {
		err = p.finish(ctx)
	}
	fmt.Print("\n", p.ledger)
	return errors.Join(err, p.ledger.check())
}

// produce enqueues all tasks, some at once and the others one by one.
func (p *play) produce(ctx context.Context, plan plan) error {
	for i := range plan.tasks {
		if i > plan.tasks/4 {
			if err := stage.Sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		work := time.Duration(50+rand.IntN(500)) * time.Millisecond
		if err := p.enqueue(ctx, strconv.Itoa(i%plan.orders), work); err != nil {
			return err
		}
	}
	return nil
}
