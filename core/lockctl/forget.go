package main

import (
	"context"

	"github.com/urfave/cli/v3"
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
			return a.with(ctx, cmd, a.act, func(ctx context.Context, f *fleet) error {
				if err := f.ForgetRecord(ctx, key, token); err != nil {
					return f.refused(ctx, key, err, "forgotten")
				}
				if asJSON(cmd) {
					return a.json(forgetJSON{Key: key, Token: token})
				}
				a.say("The completion record of %s is gone: who asks for the key next does the work again.", plain(key))
				return nil
			})
		},
	}
}

// forgetJSON is what forget-record prints.
type forgetJSON struct {
	Key   string `json:"key"`
	Token uint64 `json:"token"` // of the record that is gone
}
