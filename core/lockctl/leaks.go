package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"
)

// Why a key is a leak. It is the why field of the JSON.
const (
	leakEndless = "no_expiry" // of ours, and nothing will ever end it
	leakForeign = "foreign"   // under the prefix, and not lockkit's
)

var leakWords = map[string]string{leakEndless: "no expiry", leakForeign: "not lockkit's"}

var leakAdvice = map[string]string{
	leakEndless: "their expiry was removed (PERSIST, RESTORE, a copy). Set it again, which harms no lock: PEXPIRE KEY 864000000 (ten days).",
	leakForeign: "another program writes under the prefix, or uses a prefix that begins with this one. Find out which before you delete anything.",
}

func (a *app) leaks() *cli.Command {
	return &cli.Command{
		Name: "leaks", Usage: "what is on the nodes that nothing will ever end, or that is not lockkit's",
		Description: "Lists keys of lockkit's without expiry, and foreign keys under the prefix. All others end by themselves. The guard record of a\n" +
			"node has no expiry on purpose and is never listed: who deletes it takes the node's vote for the max TTL. Exit status 1 says that\n" +
			"something was listed.",
		Flags: []cli.Flag{&cli.IntFlag{Name: "limit", Value: 20, Usage: "list at most so many of each sort; all are counted"}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() || cmd.Int("limit") < 0 {
				return usagef("leaks takes no arguments, and a --limit of 0 and more")
			}
			return a.with(ctx, cmd, a.look, func(ctx context.Context, f *fleet) error { return a.leaking(ctx, cmd, f) })
		},
	}
}

// leaksJSON is what leaks prints. Counts are of keys on nodes: a key on three nodes counts three times.
type leaksJSON struct {
	Leaks  []leakJSON     `json:"leaks"`            // at most --limit of each why
	Found  map[string]int `json:"found"`            // by why: all leaks
	Silent []nodeJSON     `json:"silent,omitempty"` // nodes that were not read, or not to their end
}

type leakJSON struct {
	Why      string `json:"why"` // no_expiry, foreign
	Node     int    `json:"node"`
	Addr     string `json:"addr,omitempty"`
	RedisKey string `json:"redis_key"`
	Kind     string `json:"kind"` // lock, waiters, tombstone, probe, foreign
}

func (a *app) leaking(ctx context.Context, cmd *cli.Command, f *fleet) error {
	out := leaksJSON{Leaks: []leakJSON{}, Found: map[string]int{}}
	type place struct {
		node int
		name string
	}
	seen := map[place]bool{} // SCAN may return a key twice
	silent := f.walk(ctx, []string{f.keys.Everything()}, func(pipe redis.Pipeliner, name string) redis.Cmder {
		return pipe.PTTL(ctx, name)
	}, func(r reading) {
		kind, _ := f.keys.Kind(r.name)
		why := leakEndless
		switch {
		case kind == "foreign":
			why = leakForeign
		case kind == "guard" || r.got.(*redis.DurationCmd).Val() != -1: // of PTTL: none
			return
		}
		at := place{r.node, r.name}
		if seen[at] {
			return
		}
		seen[at] = true
		if out.Found[why] < cmd.Int("limit") {
			out.Leaks = append(out.Leaks, leakJSON{why, r.node, f.addr(r.node), r.name, kind})
		}
		out.Found[why]++
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	out.Silent = f.silentJSON(silent)
	var err error
	switch {
	case asJSON(cmd):
		err = a.json(out)
	case len(silent) < len(f.clients) || len(out.Found) > 0: // a node may fall silent halfway
		a.printLeaks(out)
	}
	if len(out.Found) > 0 {
		err = errors.Join(err, errFound)
	}
	return errors.Join(err, a.tellSilent(f, silent))
}

func (a *app) printLeaks(out leaksJSON) {
	switch {
	case len(out.Found) == 0 && len(out.Silent) > 0:
		a.say("No leaks in what was read.")
		return
	case len(out.Found) == 0:
		a.say("No leaks.")
		return
	}
	t := table{head: []string{"WHAT", "NODE", "ADDRESS", "KEY IN REDIS"}}
	for _, l := range out.Leaks {
		t.add(leakWords[l.Why], strconv.Itoa(l.Node), l.Addr, plain(l.RedisKey))
	}
	a.table(t)
	a.say("")
	for _, why := range []string{leakEndless, leakForeign} {
		if n := out.Found[why]; n > 0 {
			a.say("%s, %s: %s", plural(n, "key", "keys"), leakWords[why], leakAdvice[why])
		}
	}
}
