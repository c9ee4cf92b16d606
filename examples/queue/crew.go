package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A crew is the worker processes.
type crew struct {
	addrs  []string // asynq's node, and those for locks
	ledger *ledger
	hired  int

	workers []*worker
}

type worker struct {
	name  string // of the place: alice
	life  string // of this process: alice-3
	cmd   *exec.Cmd
	stdin io.WriteCloser
	read  chan struct{} // closed when all that it reported is in the ledger
}

func newCrew(addrs []string, ledger *ledger) *crew { return &crew{addrs: addrs, ledger: ledger} }

// hire starts a worker process: this program again.
func (c *crew) hire(name string) error { return c.hireWith(name, c.addrs[1:]) }

// hireWith has the worker look for the locks on these nodes.
func (c *crew) hireWith(name string, locks []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.hired++
	w := &worker{name: name, life: fmt.Sprintf("%s-%d", name, c.hired), cmd: exec.Command(self), read: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+w.life, nodesEnv+"="+strings.Join(append(c.addrs[:1:1], locks...), ","))
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(w.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.ledger.report(w.life, lines.Text())
		}
	}()
	c.workers = append(c.workers, w)
	return nil
}

// killAtRandom kills a worker now and then, and hires another one in its place. asynq takes a minute and more
// to notice that tasks are orphaned; to see it happen sooner, all active tasks are made to look so, also
// those that are being worked on. That is what clocks do which are far apart.
func (c *crew) killAtRandom(ctx context.Context, queue *redis.Client, kills int) error {
	for range kills {
		if err := sleep(ctx, time.Duration(500+rand.IntN(1000))*time.Millisecond); err != nil {
			return err
		}
		i := rand.IntN(len(c.workers))
		w := c.workers[i]
		w.cmd.Process.Kill()
		<-w.read
		w.cmd.Wait()
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
		w.stdin.Close()
	}
	for _, w := range c.workers {
		<-w.read
		if err := w.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.life, err))
		}
	}
	c.workers = nil
	return errors.Join(errs...)
}

// killAll is for when something went wrong.
func (c *crew) killAll() {
	for _, w := range c.workers {
		w.cmd.Process.Kill()
		<-w.read
		w.cmd.Wait()
	}
}
