package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
)

func (a *app) release() *cli.Command {
	return &cli.Command{
		Name:      "release",
		Usage:     "take a key from a holder that is stuck",
		ArgsUsage: "KEY --token TOKEN",
		Description: "Ends the lease that has this fencing token, as show prints it: " +
			"a lease that came after it is left alone. The lease is renewed no\n" +
			"more, and the key is free when what was confirmed last has run out, " +
			"so it is never granted while the old holder still trusts its lease.\n" +
			"The holder's context ends at its next renewal. " +
			"Find out why the holder is stuck, too: it may ask for the key again.",
		Flags: []cli.Flag{newPartsFlag(), newTokenFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			key, token, err := keyAndTokenArgs(cmd)
			if err != nil {
				return err
			}

			c := change{name: "the release", howToCheck: "look with lockctl show, and call again"}
			return a.withFleetToChange(ctx, cmd, a.openToChange, c, func(ctx context.Context, f *fleet) error {
				return a.revoke(ctx, cmd, f, key, token)
			})
		},
	}
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
		return a.printJSON(&releaseJSON{
			Key:         key,
			Holder:      newHolderJSON(&r.Holder),
			FreeInMS:    r.Remaining.Milliseconds(),
			Unconfirmed: silent,
		})
	}

	holder := fmt.Sprintf("token %d", token)
	if name := holderName(&r.Holder); name != "-" {
		holder = name + ", " + holder
	}

	if r.Remaining <= 0 {
		a.printf("%s is free. The lease of its holder (%s) was over.", lockName(key), holder)
	} else {
		a.printf("%s is taken from its holder (%s), and free in %s: "+
			"until then the old holder may still act, and the key is not granted.",
			lockName(key), holder, formatDuration(r.Remaining))
	}

	for _, n := range silent {
		a.printf("%s has not confirmed: %s. It follows the others when it is back.", nodeName(n.Node, n.Addr), n.Error)
	}
	return nil
}

// unconfirmed returns the nodes that did not confirm the request.
func unconfirmed(nodes []core.NodeReply) (list []nodeJSON) {
	for _, n := range nodes {
		if n.Verdict == core.VerdictGranted || n.Verdict == core.VerdictGone {
			continue
		}

		j := nodeJSON{Node: n.Node, Addr: n.Addr, Error: n.Verdict.String()}
		if n.Err != nil {
			j.Error = withoutNodeName(n.Err, nodeName(n.Node, n.Addr))
		}
		list = append(list, j)
	}
	return list
}

// refusalError returns the error for a change that was not made, or not surely. verb is the participle of the change.
// For a token mismatch, the error includes the state of the key.
func (f *fleet) refusalError(ctx context.Context, key string, err error, verb string) error {
	switch {
	case errors.Is(err, admin.ErrTokenMismatch):
		return f.mismatchError(ctx, key, verb)
	case errors.Is(err, core.ErrUnavailable):
		return fmt.Errorf("%w; some nodes may have done it: look with lockctl show, and call again when more nodes answer", err)
	}
	return err
}

// mismatchError returns the error for a token that is not the key's.
func (f *fleet) mismatchError(ctx context.Context, key, verb string) error {
	s, err := f.readKey(ctx, key)
	if err != nil {
		return fmt.Errorf("not %s: the token is another", verb)
	}

	state := s.stateText()
	if h := s.Holder; h != nil {
		state += " with token " + tokenText(h)
		if name := holderName(h); name != "-" {
			state += " by " + name
		}
	}
	if r := s.Record; r != nil {
		state += fmt.Sprintf("; its completion record has token %d", r.Token)
	}

	reason := ", because the token is another"
	if s.State == stateFree || s.State == stateKept { // there is no lease with another token
		reason = ""
	}
	return fmt.Errorf("not %s%s: %s%s. Nothing has changed", verb, reason, lockName(key), state)
}
