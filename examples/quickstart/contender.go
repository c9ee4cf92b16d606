package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil/history"
)

// A contender stands for one process: it shares nothing with the others but the nodes and the register. The
// score, the timeline and the history only watch.
type contender struct {
	name    string
	locker  *core.Locker
	reg     *register
	score   *score
	times   *timeline
	history *history.History
}

func newContenders(urls []string, s *score, times *timeline, reg *register, h *history.History) ([]*contender, error) {
	var all []*contender
	for _, name := range s.names {
		locker, err := core.Open(urls, core.TTL(ttl), core.WithClockWindow(ttl/10), core.WithLogger(slog.New(logHandler{times, name})))
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		all = append(all, &contender{name, locker, reg, s, times, h})
	}
	return all, nil
}

// run takes turns until the locker is closed or ctx ends.
func (c *contender) run(ctx context.Context) error {
	for {
		err := c.turn(ctx)
		switch {
		case errors.Is(err, core.ErrClosed), ctx.Err() != nil:
			return nil
		case errors.Is(err, core.ErrLost), errors.Is(err, core.ErrUnavailable):
			c.times.print(c.name, "failed", "%v", err) // and tries again
		case err != nil:
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if stage.Sleep(ctx, between(900, 1300)) != nil {
			return nil
		}
	}
}

// turn adds one to the register, slowly, which only comes out right if nobody else does so meanwhile.
func (c *contender) turn(ctx context.Context) error {
	asked := time.Now()
	c.history.Attempt(key, c.name, asked)
	return c.locker.Do(ctx, key, func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		token := lease.FencingToken()
		now := time.Now()
		c.history.Granted(key, c.name, token, now)
		c.times.print(c.name, "holds", "token %s, waited %.2fs", grouped(token), now.Sub(asked).Seconds())
		c.score.turn(c.name)

		value := c.reg.read()
		err := stage.Sleep(ctx, between(600, 800)) // the work; it ends early if the lease does
		if err == nil {
			err = c.reg.write(token, value+1)
		}
		if errors.Is(err, core.ErrLost) {
			c.history.Lost(key, c.name, token, earlier(time.Now(), lease.ValidUntil()))
			return err
		}
		c.history.Ended(key, c.name, token, time.Now())
		if err == nil {
			c.times.print(c.name, "releases", "wrote %d", value+1)
		}
		return err
	})
}

func between(least, most int) time.Duration {
	return time.Duration(least+rand.IntN(most-least)) * time.Millisecond
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
