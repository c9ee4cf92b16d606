package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
)

func (a *app) forgetRecord() *cli.Command {
	return &cli.Command{
		Name:      "forget-record",
		Usage:     "drop the completion record of a key, so that its work is done again",
		ArgsUsage: "KEY --token TOKEN",
		Description: "For work that is recorded as done and has to be done again. " +
			"It needs the token of the record, as show prints it, and all nodes: one\n" +
			"that is out of reach may bring the record back, " +
			"and so may the holder for a max TTL after its completion.",
		Flags: []cli.Flag{newPartsFlag(), newTokenFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			key, token, err := keyAndTokenArgs(cmd)
			if err != nil {
				return err
			}

			c := change{name: "the drop of the record", howToCheck: "look with lockctl show, and call again"}
			return a.withFleetToChange(ctx, cmd, a.openToChange, c, func(ctx context.Context, f *fleet) error {
				return a.forget(ctx, cmd, f, key, token)
			})
		},
	}
}

func (a *app) forget(ctx context.Context, cmd *cli.Command, f *fleet, key string, token uint64) error {
	err := admin.ForgetRecord(ctx, f.Locker, key, token)
	if err != nil {
		return f.forgetError(ctx, key, err)
	}

	if asJSON(cmd) {
		return a.printJSON(&forgetJSON{Key: key, Token: token})
	}
	a.printf("The completion record of %s is gone: who asks for the key next does the work again.", lockName(key))
	return nil
}

// forgetError returns the error for a record that remains or may remain on some node. All nodes must forget a record,
// not just a quorum.
func (f *fleet) forgetError(ctx context.Context, key string, err error) error {
	opErr, ok := errors.AsType[*core.OpError](err)
	if !ok || !errors.Is(err, core.ErrUnavailable) {
		return f.refusalError(ctx, key, err, "forgotten")
	}

	// A node with another record has answered, too.
	replies := slices.Clone(opErr.Nodes)
	replies = slices.DeleteFunc(replies, func(n core.NodeReply) bool { return n.Verdict == core.VerdictDone })

	var silent []string
	for _, n := range unconfirmed(replies) {
		silent = append(silent, nodeName(n.Node, n.Addr)+": "+n.Error)
	}
	return fmt.Errorf("not forgotten by all nodes, which it takes: %s; others may have done it: "+
		"look with lockctl show, and call again when more nodes answer", strings.Join(silent, "; "))
}

// forgetJSON is the output of forget-record.
type forgetJSON struct {
	Key   string `json:"key"`
	Token uint64 `json:"token"` // of the record that was deleted
}
