package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/core/internal/inside"
)

func (a *app) release() *cli.Command {
	return &cli.Command{
		Name: "release", Usage: "take a key from a holder that is stuck", ArgsUsage: "KEY --token TOKEN",
		Description: "Ends the lease that has this fencing token, as show prints it: a lease that came after it is left alone. The lease is renewed no\n" +
			"more, and the key is free when what was confirmed last has run out, so it is never granted while the old holder still trusts its lease.\n" +
			"The holder's context ends at its next renewal. Find out why the holder is stuck, too: it may ask for the key again.",
		Flags: []cli.Flag{newPartsFlag(), newTokenFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			key, token, err := keyAndTokenArgs(cmd)
			if err != nil {
				return err
			}
			return a.withFleetToChange(ctx, cmd, a.openToChange, "the release", "look with lockctl show, and call again",
				func(ctx context.Context, f *fleet) error { return a.revoke(ctx, cmd, f, key, token) })
		},
	}
}

func newTokenFlag() cli.Flag {
	return &cli.StringFlag{Name: "token", Usage: "the fencing `TOKEN` that show prints for the key; it is never guessed"}
}

// keyAndTokenArgs returns the arguments of a command that ends a lease or a record.
func keyAndTokenArgs(cmd *cli.Command) (string, uint64, error) {
	key, err := keyArg(cmd)
	if err != nil {
		return "", 0, err
	}
	text := cmd.String("token")
	if text == "" {
		return "", 0, usagef("--token is missing: give the token that lockctl show prints, so that only this lease is ended")
	}
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return "", 0, usagef("--token is a number greater than 0, as lockctl show prints it")
	}
	return key, token, nil
}

// openToChange is openToInspect for commands that change something: warnings of the Locker are logged.
func (a *app) openToChange(cmd *cli.Command) (*fleet, error) {
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return a.open(cmd, inside.Looking.(core.Option), core.WithLogger(log))
}

// releaseJSON is the output of release.
type releaseJSON struct {
	Key         string      `json:"key"`
	Holder      *holderJSON `json:"holder"`     // the former holder
	FreeInMS    int64       `json:"free_in_ms"` // 0: the key is free; until then the former holder may still trust its lease
	Unconfirmed []nodeJSON  `json:"unconfirmed,omitempty"`
}

func (a *app) revoke(ctx context.Context, cmd *cli.Command, f *fleet, key string, token uint64) error {
	r, err := admin.Revoke(ctx, f.Locker, key, token)
	if err != nil {
		return f.refusalError(ctx, key, err, "released")
	}
	silent := unconfirmed(r.Nodes)
	if asJSON(cmd) {
		return a.printJSON(&releaseJSON{Key: key, Holder: newHolderJSON(&r.Holder), FreeInMS: r.Left.Milliseconds(), Unconfirmed: silent})
	}
	holder := fmt.Sprintf("token %d", token)
	if name := holderName(&r.Holder); name != "-" {
		holder = name + ", " + holder
	}
	switch {
	case r.Left <= 0:
		a.printf("%s is free. The lease of its holder (%s) was over.", quoteIfNeeded(key), holder)
	default:
		a.printf("%s is taken from its holder (%s), and free in %s: until then the old holder may still act, and the key is not granted.",
			quoteIfNeeded(key), holder, formatDuration(r.Left))
	}
	for _, n := range silent {
		a.printf("%s has not confirmed: %s. It follows the others when it is back.", nodeName(n.Node, n.Addr), n.Error)
	}
	return nil
}

// unconfirmed returns the nodes that did not confirm the request.
func unconfirmed(nodes []core.NodeReply) (list []nodeJSON) {
	for _, n := range nodes {
		if n.Verdict != core.VerdictGranted && n.Verdict != core.VerdictGone {
			j := nodeJSON{Node: n.Node, Addr: n.Addr, Error: n.Verdict.String()}
			if n.Err != nil {
				j.Error = withoutNodeName(n.Err, nodeName(n.Node, n.Addr))
			}
			list = append(list, j)
		}
	}
	return list
}

// refusalError returns the error for a change that was not made. For a token mismatch, it includes the state of the
// key.
func (f *fleet) refusalError(ctx context.Context, key string, err error, verb string) error {
	switch {
	case errors.Is(err, admin.ErrTokenMismatch):
		s, readErr := f.key(ctx, key)
		if readErr != nil {
			return fmt.Errorf("not %s: the token is another", verb)
		}
		state := s.stateText()
		if h := s.Holder; h != nil {
			state += " with token " + tokenText(h)
			if who := holderName(h); who != "-" {
				state += " by " + who
			}
		}
		if r := s.Record; r != nil {
			state += fmt.Sprintf("; its completion record has token %d", r.Token)
		}
		reason := ", because the token is another"
		if s.State == stateFree || s.State == stateKept {
			reason = ""
		}
		return fmt.Errorf("not %s%s: %s%s. Nothing has changed", verb, reason, quoteIfNeeded(key), state)
	case errors.Is(err, core.ErrUnavailable):
		return fmt.Errorf("%w; some nodes may have done it: look with lockctl show, and call again when more nodes answer", err)
	}
	return err
}
