package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"
)

func (a *app) watch() *cli.Command {
	return &cli.Command{
		Name: "watch", Usage: "follow the turns of a key", ArgsUsage: "KEY",
		Description: "Prints a line now and at each change of holder, token, record or number of waiters, until interrupted or --for is over. It\n" +
			"looks once in each --interval: turns that are shorter may go unseen, and their tokens tell that they were there.",
		Flags: []cli.Flag{partsFlag(),
			&cli.DurationFlag{Name: "interval", Value: 250 * time.Millisecond, Usage: "how often to look"},
			&cli.DurationFlag{Name: "for", Usage: "end after this long (default: when interrupted)"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			key, err := key(cmd)
			if err != nil {
				return err
			}
			if cmd.Duration("interval") < 10*time.Millisecond || cmd.Duration("for") < 0 {
				return usagef("--interval must be at least 10ms, and --for must not be negative")
			}
			f, err := a.look(cmd)
			if err != nil {
				return err
			}
			defer f.close()
			if d := cmd.Duration("for"); d > 0 {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, d)
				defer stop()
			}
			return a.follow(ctx, cmd, f, key)
		},
	}
}

// turnJSON is a line of watch.
type turnJSON struct {
	At time.Time `json:"at"`
	showJSON
	Change string `json:"change"` // in words
}

func (a *app) follow(ctx context.Context, cmd *cli.Command, f *fleet, key string) error {
	look := time.NewTicker(cmd.Duration("interval"))
	defer look.Stop()
	var before *keyState
	for {
		now, err := f.key(ctx, key)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && before == nil {
			return fmt.Errorf("nothing was read within %v: give it longer with --for, or ask doctor which node is slow", cmd.Duration("for"))
		}
		if ctx.Err() != nil {
			return nil // it was to end, and this is how
		}
		if err != nil {
			return err
		}
		if what := now.change(before); what != "" {
			at := time.Now()
			if asJSON(cmd) {
				err = a.jsonLine(turnJSON{At: at.UTC(), showJSON: now.json(), Change: what})
			} else {
				_, err = fmt.Fprintf(a.stdout, "%s  %s\n", at.UTC().Format("15:04:05.000"), what)
			}
			if err != nil {
				return err
			}
			before = now
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// change is what is new, in words; empty for nothing. Renewals are no change.
func (s *keyState) change(before *keyState) string {
	if before != nil && s.State == before.State && s.attempt() == before.attempt() && s.token() == before.token() && s.recorded() == before.recorded() &&
		s.waiting() == before.waiting() {
		return ""
	}
	words := s.turn(before)
	if n := s.waiting(); n > 0 {
		words += fmt.Sprintf("; waiting: %d", n)
	}
	return words
}

// turn is the state in a few words, beside the one before.
func (s *keyState) turn(before *keyState) string {
	switch {
	case s.State == stateHeld && before != nil && before.attempt() == s.attempt() && before.token() == s.token():
		return "held, as before"
	case s.State == stateHeld:
		words := "held"
		if before != nil && before.State == stateHeld && before.attempt() != s.attempt() {
			words = "passed on"
		} else if before != nil && before.attempt() != s.attempt() {
			words = "granted"
		}
		if token := s.token(); token != 0 {
			words += fmt.Sprintf(", token %d", token)
		}
		if who := identity(s.Holder); who != "-" {
			words += ", " + who
		}
		return words + ", left " + brief(s.Left)
	case s.State == statePartial:
		return "some nodes have a lease, and no quorum the same one"
	case s.State == stateKept:
		return "no holder, taken for another " + brief(s.Left)
	case s.State == stateCompleted:
		return fmt.Sprintf("completed, token %d", s.recorded())
	case s.State == stateUnknown:
		return "ownership unknown; " + s.doubt()
	case before != nil && before.State == stateHeld:
		return "free again"
	}
	return "free"
}

func (s *keyState) attempt() string {
	if s.Holder == nil {
		return ""
	}
	return s.Holder.Attempt
}

func (s *keyState) token() uint64 {
	if s.Holder == nil {
		return 0
	}
	return s.Holder.Token
}

// recorded is the token of the record.
func (s *keyState) recorded() uint64 {
	if s.Record == nil {
		return 0
	}
	return s.Record.Token
}
