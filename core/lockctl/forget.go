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
		Name: "forget-record", Usage: "drop the completion record of a key, so that its work is done again", ArgsUsage: "KEY --token TOKEN",
		Description: "For work that is recorded as done and has to be done again. It needs the token of the record, as show prints it, and all nodes: one\n" +
			"that is out of reach may bring the record back, and so may the holder for a max TTL after its completion.",
		Flags: []cli.Flag{partsFlag(), tokenFlag()},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			key, token, err := keyAndToken(cmd)
			if err != nil {
				return err
			}
			return a.changes(ctx, cmd, a.act, "the drop of the record", "look with lockctl show, and call again", func(ctx context.Context, f *fleet) error {
				if err := admin.ForgetRecord(ctx, f.Locker, key, token); err != nil {
					return f.notForgotten(ctx, key, err)
				}
				if asJSON(cmd) {
					return a.json(&forgetJSON{Key: key, Token: token})
				}
				a.say("The completion record of %s is gone: who asks for the key next does the work again.", plain(key))
				return nil
			})
		},
	}
}

// notForgotten is the error of a record that is still there, or may be. It takes all nodes, and not just a quorum.
func (f *fleet) notForgotten(ctx context.Context, key string, err error) error {
	op, ok := errors.AsType[*core.OpError](err)
	if !ok || !errors.Is(err, core.ErrUnavailable) {
		return f.refused(ctx, key, err, "forgotten")
	}
	// Another record is an answer, too.
	others := slices.DeleteFunc(slices.Clone(op.Nodes), func(n core.NodeReply) bool { return n.Verdict == core.VerdictDone })
	var silent []string
	for _, n := range unconfirmed(others) {
		silent = append(silent, nodeName(n.Node, n.Addr)+": "+n.Error)
	}
	return fmt.Errorf("not forgotten by all nodes, which it takes: %s; others may have done it: look with lockctl show, and call again when more nodes answer",
		strings.Join(silent, "; "))
}

// forgetJSON is what forget-record prints.
type forgetJSON struct {
	Key   string `json:"key"`
	Token uint64 `json:"token"` // of the record that is gone
}
