package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A crew is the worker processes.
type crew struct {
	queue  string   // the address of asynq's node
	locks  []string // the URLs of those for locks
	ledger *ledger
	hired  int

	workers []*worker
}

type worker struct {
	name string // of the place: alice
	life string // of this process: alice-3
	*stage.Child
}

// hire starts a worker process: this program again.
func (c *crew) hire(name string) error { return c.hireWith(name, c.locks) }

// hireWith has the worker look for the locks on these nodes.
func (c *crew) hireWith(name string, locks []string) error {
	c.hired++
	life := fmt.Sprintf("%s-%d", name, c.hired)
	read := func(stdout io.Reader) {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.ledger.report(life, lines.Text())
		}
	}
	child, err := stage.Start(read, workerEnv+"="+life, queueEnv+"="+c.queue, locksEnv+"="+strings.Join(locks, ","))
	if err != nil {
		return err
	}
	c.workers = append(c.workers, &worker{name, life, child})
	return nil
}

// killAtRandom kills a worker now and then, and hires another one in its place. asynq takes a minute and more
// to notice that tasks are orphaned; to see it happen sooner, all active tasks are made to look so, also
// those that are being worked on. That is what clocks do which are far apart.
func (c *crew) killAtRandom(ctx context.Context, queue *redis.Client, kills int) error {
	for range kills {
		if err := stage.Sleep(ctx, time.Duration(500+rand.IntN(1000))*time.Millisecond); err != nil {
			return err
		}
		i := rand.IntN(len(c.workers))
		w := c.workers[i]
		w.Kill()
		running := c.ledger.killed(w.life, time.Now())
		fmt.Printf("%s killed at work on %d tasks\n", w.name, running)
		c.workers = append(c.workers[:i:i], c.workers[i+1:]...)
		active, err := queue.LRange(ctx, "asynq:{default}:active", 0, -1).Result()
		if err != nil {
			return err
		}
		for _, id := range active {
			if err := queue.ZAddXX(ctx, "asynq:{default}:lease", redis.Z{Score: 1, Member: id}).Err(); err != nil {
				return err
			}
		}
		if err := c.hire(w.name); err != nil { // its server looks for orphans as it starts
			return err
		}
	}
	return nil
}

// dismiss lets the workers finish and waits for their end.
func (c *crew) dismiss() error {
	var errs []error
	for _, w := range c.workers {
		w.Dismiss()
	}
	for _, w := range c.workers {
		if err := w.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.life, err))
		}
	}
	c.workers = nil
	return errors.Join(errs...)
}

// killAll is for when something went wrong.
func (c *crew) killAll() {
	for _, w := range c.workers {
		w.Kill()
	}
}
