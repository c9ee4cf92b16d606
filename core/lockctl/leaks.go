package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Why a key is a leak. It is the why field of the JSON.
const (
	leakEndless = "no_expiry" // of ours, and nothing will ever end it
	leakForeign = "foreign"   // under the prefix, and not lockkit's
)

var leakWords = map[string]string{leakEndless: "no expiry", leakForeign: "not lockkit's"}

var leakAdvice = map[string]string{
	leakEndless: "their expiry was removed (PERSIST, RESTORE, a copy). Set it again: PEXPIRE KEY with the milliseconds of its line, which end no lock and no completion record early. If a line has none, leave the key alone.",
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

	// What PEXPIRE may be given for the key, so that nothing in it ends early. 0: nothing may, or it is not known.
	ExpireMS int64 `json:"expire_ms,omitempty"`
}

// leastExpiry is how long a key is kept whose expiry was removed, at least: no lease, cooldown or tombstone lasts longer.
const leastExpiry = 10 * 24 * time.Hour

// expiry returns for how long a key without an expiry has to be kept; 0 if it cannot be told. A completion record may be
// kept for years.
func (f *fleet) expiry(ctx context.Context, l leakJSON) time.Duration {
	if l.Kind != "lock" {
		return leastExpiry
	}
	pipe := f.clients[l.Node].Pipeline()
	value, at := pipe.GetRange(ctx, l.RedisKey, 0, mostOfALock-1), pipe.Time(ctx)
	_, _ = pipe.Exec(ctx) // each command has its own error
	s, err := wire.ParseStored(value.Val())
	if value.Err() != nil || at.Err() != nil || err != nil {
		return 0
	}
	const slack = 3 * time.Hour // as Redis keeps records, and for clocks that differ
	return max(leastExpiry, s.Kept.Since(wire.NodeTimeOf(at.Val()).Whole())+slack).Truncate(time.Millisecond)
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
			out.Leaks = append(out.Leaks, leakJSON{why, r.node, f.addr(r.node), r.name, kind, 0})
		}
		out.Found[why]++
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, l := range out.Leaks {
		if l.Why == leakEndless {
			out.Leaks[i].ExpireMS = f.expiry(ctx, l).Milliseconds()
		}
	}
	out.Silent = f.silentJSON(silent)
	var err error
	switch {
	case asJSON(cmd):
		err = a.json(&out)
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
	t := table{head: []string{"WHAT", "NODE", "ADDRESS", "KEY IN REDIS", "PEXPIRE"}}
	for _, l := range out.Leaks {
		expire := "-"
		if l.ExpireMS > 0 {
			expire = strconv.FormatInt(l.ExpireMS, 10)
		}
		t.add(leakWords[l.Why], strconv.Itoa(l.Node), l.Addr, plain(l.RedisKey), expire)
	}
	a.table(t)
	a.say("")
	for _, why := range []string{leakEndless, leakForeign} {
		if n := out.Found[why]; n > 0 {
			a.say("%s, %s: %s", plural(n, "key", "keys"), leakWords[why], leakAdvice[why])
		}
	}
}
