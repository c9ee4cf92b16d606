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

// Reasons for which a key is a leak. They are values of the field why in JSON.
const (
	leakNoExpiry = "no_expiry" // a key of lockkit that never expires
	leakForeign  = "foreign"   // a key under the prefix that is not lockkit's
)

var leakNames = map[string]string{
	leakNoExpiry: "no expiry",
	leakForeign:  "not lockkit's",
}

var leakAdvice = map[string]string{
	leakNoExpiry: "their expiry was removed (PERSIST, RESTORE, a copy). " +
		"Set it again: PEXPIRE KEY with the milliseconds of its line, which end no lock and no completion record early. " +
		"If a line has none, leave the key alone.",
	leakForeign: "another program writes under the prefix, or uses a prefix that begins with this one. " +
		"Find out which before you delete anything.",
}

func (a *app) leaks() *cli.Command {
	return &cli.Command{
		Name:  "leaks",
		Usage: "what is on the nodes that nothing will ever end, or that is not lockkit's",
		Description: "Lists keys of lockkit's without expiry, and foreign keys under the prefix. " +
			"All others end by themselves. The guard record of a\n" +
			"node has no expiry on purpose and is never listed: " +
			"who deletes it takes the node's vote for the max TTL. Exit status 1 says that\n" +
			"something was listed.",
		Flags: []cli.Flag{
			&cli.IntFlag{
				Name:  "limit",
				Value: 20,
				Usage: "list at most so many of each sort; all are counted",
			},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() || cmd.Int("limit") < 0 {
				return usagef("leaks takes no arguments, and a --limit of 0 and more")
			}

			return a.withFleet(ctx, cmd, a.openToInspect, func(ctx context.Context, f *fleet) error {
				return a.listLeaks(ctx, cmd, f)
			})
		},
	}
}

// leaksJSON is the output of leaks. A key on three nodes is counted three times.
type leaksJSON struct {
	Leaks  []leakJSON     `json:"leaks"`            // at most --limit for each reason
	Found  map[string]int `json:"found"`            // number of all leaks, by reason
	Silent []nodeJSON     `json:"silent,omitempty"` // nodes that were not read, or not completely
}

type leakJSON struct {
	Why      string `json:"why"` // no_expiry, foreign
	Node     int    `json:"node"`
	Addr     string `json:"addr,omitempty"`
	RedisKey string `json:"redis_key"`
	Kind     string `json:"kind"` // lock, waiters, tombstone, probe, foreign

	// An expiry for PEXPIRE that ends nothing in the key early. It is 0 if there is none, or if it is unknown.
	ExpireMS int64 `json:"expire_ms,omitempty"`
}

// minExpiry is the least expiry that is suggested for a key. No lease, cooldown or tombstone lasts longer.
const minExpiry = 10 * 24 * time.Hour

// safeExpiry returns an expiry that ends nothing in the key early, or 0 if the key cannot be read. It may be years,
// because completion records may be kept for years.
func (f *fleet) safeExpiry(ctx context.Context, l leakJSON) time.Duration {
	if l.Kind != "lock" {
		return minExpiry
	}

	pipe := f.clients[l.Node].Pipeline()
	value := pipe.GetRange(ctx, l.RedisKey, 0, maxLockBytes-1)
	serverTime := pipe.Time(ctx)
	_, _ = pipe.Exec(ctx) // each command has its own error

	stored, err := wire.ParseStored(value.Val())
	if value.Err() != nil || serverTime.Err() != nil || err != nil {
		return 0
	}

	const slack = 3 * time.Hour // Redis keeps records two hours beyond their retention; clocks may differ
	retention := stored.RecordExpiry.Since(wire.NodeTimeOf(serverTime.Val()).TruncateToMillis())
	return max(minExpiry, retention+slack).Truncate(time.Millisecond)
}

func (a *app) listLeaks(ctx context.Context, cmd *cli.Command, f *fleet) error {
	out, unread := f.findLeaks(ctx, cmd.Int("limit"))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	for i, l := range out.Leaks {
		if l.Why == leakNoExpiry {
			out.Leaks[i].ExpireMS = f.safeExpiry(ctx, l).Milliseconds()
		}
	}
	out.Silent = f.unreadJSON(unread)

	var err error
	wasRead := len(unread) < len(f.clients) || len(out.Found) > 0 // a node that fails halfway may have shown leaks
	switch {
	case asJSON(cmd):
		err = a.printJSON(&out)
	case wasRead:
		a.printLeaks(out)
	}

	if len(out.Found) > 0 {
		err = errors.Join(err, errProblemFound)
	}
	return errors.Join(err, a.reportUnread(f, unread))
}

// findLeaks returns the leaks on all nodes, without their expiry, and the errors of nodes that were not read.
func (f *fleet) findLeaks(ctx context.Context, limit int) (leaksJSON, map[int]error) {
	type place struct {
		node int
		name string
	}
	counted := map[place]bool{} // SCAN may return a key twice
	out := leaksJSON{Leaks: []leakJSON{}, Found: map[string]int{}}

	unread := f.scanNodes(ctx, scan{
		patterns: []string{f.keys.Everything()},
		query: func(ctx context.Context, pipe redis.Pipeliner, name string) redis.Cmder {
			return pipe.PTTL(ctx, name)
		},
		visit: func(r reading) {
			kind, why := f.leak(r)
			if why == "" {
				return
			}

			at := place{r.node, r.name}
			if counted[at] {
				return
			}
			counted[at] = true

			if out.Found[why] < limit {
				out.Leaks = append(out.Leaks, leakJSON{
					Why:      why,
					Node:     r.node,
					Addr:     f.addr(r.node),
					RedisKey: r.name,
					Kind:     kind,
				})
			}
			out.Found[why]++
		},
	})
	return out, unread
}

// leak returns the kind of a key and the reason for which it is a leak, "" if it is none. The reply is the key's PTTL.
func (f *fleet) leak(r reading) (kind, why string) {
	const noExpiry = -1

	kind, _ = f.keys.Kind(r.name)
	switch {
	case kind == "foreign":
		return kind, leakForeign
	case kind == "guard":
		return kind, ""
	case r.reply.(*redis.DurationCmd).Val() == noExpiry:
		return kind, leakNoExpiry
	}
	return kind, ""
}

func (a *app) printLeaks(out leaksJSON) {
	switch {
	case len(out.Found) == 0 && len(out.Silent) > 0:
		a.printf("No leaks in what was read.")
		return
	case len(out.Found) == 0:
		a.printf("No leaks.")
		return
	}

	t := table{head: []string{"WHAT", "NODE", "ADDRESS", "KEY IN REDIS", "PEXPIRE"}}
	for _, l := range out.Leaks {
		expire := "-"
		if l.ExpireMS > 0 {
			expire = strconv.FormatInt(l.ExpireMS, 10)
		}
		t.add(leakNames[l.Why], strconv.Itoa(l.Node), l.Addr, quoteIfNeeded(l.RedisKey), expire)
	}
	a.printTable(t)
	a.printf("")

	for _, why := range []string{leakNoExpiry, leakForeign} {
		if n := out.Found[why]; n > 0 {
			a.printf("%s, %s: %s", plural(n, "key", "keys"), leakNames[why], leakAdvice[why])
		}
	}
}
