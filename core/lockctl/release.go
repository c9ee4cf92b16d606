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
		Flags: []cli.Flag{partsFlag(), tokenFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			key, token, err := keyAndToken(cmd)
			if err != nil {
				return err
			}
			return a.changes(ctx, cmd, a.act, "the release", "look with lockctl show, and call again",
				func(ctx context.Context, f *fleet) error { return a.take(ctx, cmd, f, key, token) })
		},
	}
}

func tokenFlag() cli.Flag {
	return &cli.StringFlag{Name: "token", Usage: "the fencing `TOKEN` that show prints for the key; it is never guessed"}
}

// keyAndToken are the arguments of what ends something.
func keyAndToken(cmd *cli.Command) (string, uint64, error) {
	key, err := key(cmd)
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

// act is look for what changes something: it is logged.
func (a *app) act(cmd *cli.Command) (*fleet, error) {
	log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return a.open(cmd, inside.Looking.(core.Option), core.WithLogger(log))
}

// releaseJSON is what release prints.
type releaseJSON struct {
	Key         string      `json:"key"`
	Holder      *holderJSON `json:"holder"`     // who had it
	FreeInMS    int64       `json:"free_in_ms"` // 0: it is free; until then the old holder may still take itself for the holder
	Unconfirmed []nodeJSON  `json:"unconfirmed,omitempty"`
}

func (a *app) take(ctx context.Context, cmd *cli.Command, f *fleet, key string, token uint64) error {
	r, err := admin.Revoke(ctx, f.Locker, key, token)
	if err != nil {
		return f.refused(ctx, key, err, "released")
	}
	silent := unconfirmed(r.Nodes)
	if asJSON(cmd) {
		return a.json(&releaseJSON{Key: key, Holder: newHolderJSON(&r.Holder), FreeInMS: r.Left.Milliseconds(), Unconfirmed: silent})
	}
	who := fmt.Sprintf("token %d", token)
	if name := identity(&r.Holder); name != "-" {
		who = name + ", " + who
	}
	switch {
	case r.Left <= 0:
		a.say("%s is free. The lease of its holder (%s) was over.", plain(key), who)
	default:
		a.say("%s is taken from its holder (%s), and free in %s: until then the old holder may still act, and the key is not granted.",
			plain(key), who, brief(r.Left))
	}
	for _, n := range silent {
		a.say("%s has not confirmed: %s. It follows the others when it is back.", nodeName(n.Node, n.Addr), n.Error)
	}
	return nil
}

// unconfirmed are the nodes that did not answer.
func unconfirmed(nodes []core.NodeReply) (list []nodeJSON) {
	for _, n := range nodes {
		if n.Verdict != core.VerdictGranted && n.Verdict != core.VerdictGone {
			j := nodeJSON{Node: n.Node, Addr: n.Addr, Error: n.Verdict.String()}
			if n.Err != nil {
				j.Error = own(n.Err, nodeName(n.Node, n.Addr))
			}
			list = append(list, j)
		}
	}
	return list
}

// refused is the error of what was not done, with what show would say.
func (f *fleet) refused(ctx context.Context, key string, err error, done string) error {
	switch {
	case errors.Is(err, admin.ErrTokenMismatch):
		s, look := f.key(ctx, key)
		if look != nil {
			return fmt.Errorf("not %s: the token is another", done)
		}
		now := s.sentence()
		if h := s.Holder; h != nil {
			now += " with token " + tokenText(h)
			if who := identity(h); who != "-" {
				now += " by " + who
			}
		}
		if r := s.Record; r != nil {
			now += fmt.Sprintf("; its completion record has token %d", r.Token)
		}
		because := ", because the token is another"
		if s.State == stateFree || s.State == stateKept {
			because = ""
		}
		return fmt.Errorf("not %s%s: %s%s. Nothing has changed", done, because, plain(key), now)
	case errors.Is(err, core.ErrUnavailable):
		return fmt.Errorf("%w; some nodes may have done it: look with lockctl show, and call again when more nodes answer", err)
	}
	return err
}
