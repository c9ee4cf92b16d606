package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

func (a *app) lowerMaxTTL() *cli.Command {
	return &cli.Command{
		Name: "lower-max-ttl", Usage: "make nodes forget a max TTL that no process uses any more",
		Description: "A node that loses its memory does not vote for the longest max TTL that it has heard of, as doctor shows it. This lowers the\n" +
			"longest to --max-ttl, the max TTL of the services.\n\n" +
			"Stop all processes that lock on these nodes before, and start them after: one that runs has heard of the longer max TTL, also\n" +
			"where it never used it, and tells the nodes of it again. doctor shows a value that came back, and since when.\n\n" +
			"It is refused unless all nodes answer and vote, no lease lasts for longer than --max-ttl, and no process names a longer one\n" +
			"meanwhile.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("lower-max-ttl takes no arguments: it lowers the value to --max-ttl on all nodes")
			}
			return a.changes(ctx, cmd, a.look, "the lowering", "look with lockctl doctor, and call again", func(ctx context.Context, f *fleet) error {
				was, is, err := f.lowerLongest(ctx)
				switch {
				case err != nil:
					return err
				case asJSON(cmd):
					return a.json(&lowerJSON{MaxTTLMS: is.Milliseconds(), WasMS: was.Milliseconds()})
				case was == is:
					a.say("Nothing has changed: no node has heard of a longer max TTL than %s.", brief(is))
				default:
					a.say("The longest max TTL that nodes know of is %s now, and was %s. A process that has run meanwhile brings %s back: lockctl doctor shows it.",
						brief(is), brief(was), brief(was))
				}
				return nil
			})
		},
	}
}

// lowerJSON is what lower-max-ttl prints.
type lowerJSON struct {
	MaxTTLMS int64 `json:"max_ttl_ms"` // the longest that nodes know of
	WasMS    int64 `json:"was_ms"`     // before; the same where nothing has changed
}

// lowerLongest lowers the longest max TTL that nodes know of to that of the services, and returns what it was and is. Each step
// takes all nodes before the next, as in docs/models/maxttl.pml.
func (f *fleet) lowerLongest(ctx context.Context) (was, is time.Duration, err error) {
	g, leave, err := inside.Enter(ctx, f.Locker, nil)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	if !g.Conf.Guarded {
		return 0, 0, usagef("the restart guard is off (fewer than three nodes, or --guard=false), so no node has heard of a max TTL: give --guard if the services have it")
	}

	l := &lowering{fleet: f, group: g}
	err = l.run(ctx)
	if err != nil {
		l.unmark()
	}
	return g.Head.Load().MaxTTL, g.Conf.MaxTTL, err
}

// A lowering is one run of the command.
type lowering struct {
	*fleet
	group  *node.Group
	marked [][]quorum.Vote // what each node said, by guard record
}

func (l *lowering) run(ctx context.Context) error {
	err := l.mark(ctx)
	if err != nil || l.group.Head.Load().MaxTTL <= l.group.Conf.MaxTTL { // there is nothing to lower
		return err
	}

	err = l.outlasting(ctx, l.group.Conf.MaxTTL)
	if err != nil {
		return err
	}

	// Where a node lost its memory before its leases were looked at, the value must not be lowered on any.
	err = l.each(ctx, (*node.Bucket).CheckMarks)
	if err != nil {
		return err
	}

	err = l.each(ctx, (*node.Bucket).Lower)
	if err != nil {
		return fmt.Errorf("%w. The value may be lowered on other nodes, which does no harm", err)
	}
	return nil
}

// mark marks all nodes. Where one tells of a longer max TTL than they were told, all are told of that.
func (l *lowering) mark(ctx context.Context) error {
	for {
		told := l.group.Head.Load()
		l.marked = make([][]quorum.Vote, len(l.group.Buckets))
		for i, b := range l.group.Buckets {
			votes, ok := b.Mark(ctx)
			if !ok {
				return inside.EndOf(ctx)
			}
			if err := l.refusal(votes); err != nil {
				return err
			}
			l.marked[i] = votes
		}
		if l.group.Head.Load() == told {
			return nil
		}
	}
}

// each asks all nodes about each guard record that was marked.
func (l *lowering) each(ctx context.Context, ask func(*node.Bucket, context.Context, []quorum.Vote) ([]quorum.Vote, bool)) error {
	for i, b := range l.group.Buckets {
		votes, ok := ask(b, ctx, l.marked[i])
		if !ok {
			return inside.EndOf(ctx)
		}
		if err := l.refusal(votes); err != nil {
			return err
		}
	}
	return nil
}

// unmark takes away what marks there may be. Those that stay end by themselves.
func (l *lowering) unmark() {
	var all sync.WaitGroup
	for _, b := range l.group.Buckets {
		all.Go(func() { b.Unmark(context.Background()) }) //nolint:forbidigo // the command's own may have ended; bounded by the node timeout
	}
	all.Wait()
}

// refusal is why the value is not lowered, given what the nodes said; nil where nothing is against it.
func (l *lowering) refusal(votes []quorum.Vote) error {
	var why []string
	var asked []int
	for i := range votes {
		v, name := &votes[i], nodeName(i, l.addr(i))
		switch v.Verdict {
		case wire.Granted:
		case wire.Gone:
			asked = append(asked, i)
		case wire.Quarantined:
			why = append(why, fmt.Sprintf("%s is in quarantine for another %s, because it may have forgotten a lease: call again after that, and restart no node before",
				name, brief(v.Rest)))
		default:
			why = append(why, fmt.Sprintf("%s: %s: all nodes have to answer, lockctl doctor says what is wrong", name, own(errors.New(v.Why()), name)))
		}
	}
	if asked != nil {
		why = append(why, fmt.Sprintf("a process that uses, or has heard of, a longer max TTL than %s has asked %s meanwhile (or another lower-max-ttl has, or the memory was lost): stop all processes that lock on these nodes, and call again",
			brief(l.group.Conf.MaxTTL), nodeList(asked)))
	}
	if why == nil {
		return nil
	}
	return fmt.Errorf("not lowered: %s", strings.Join(why, "; "))
}

// mostNamed is how many keys an error names.
const mostNamed = 3

// outlasting returns an error that names the keys whose leases last for longer than ttl, nil where there are none on any node.
// What a node stores for a key and this version cannot read may be a lease.
func (l *lowering) outlasting(ctx context.Context, ttl time.Duration) error {
	var found []reading // without what was read
	silent := l.walk(ctx, l.keys.Resources("*"), func(pipe redis.Pipeliner, name string) redis.Cmder {
		return pipe.GetRange(ctx, name, 0, mostOfALock-1)
	}, func(r reading) {
		if kind, _ := l.keys.Kind(r.name); kind == "lock" && outlasts(r, ttl) != "" {
			found = append(found, reading{node: r.node, name: r.name})
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var why []string
	for _, n := range l.silentJSON(silent) {
		why = append(why, fmt.Sprintf("%s was not read: %s", nodeName(n.Node, n.Addr), n.Error))
	}
	for i := 0; i < len(found) && len(why) < mostNamed; i++ {
		again, err := l.again(ctx, found[i])
		_, key := l.keys.Kind(again.name)
		switch what := outlasts(again, ttl); {
		case err != nil:
			why = append(why, fmt.Sprintf("%s was not read: %s", nodeName(again.node, l.addr(again.node)), oneLine(err)))
		case what != "":
			why = append(why, fmt.Sprintf("on %s, %s %s", nodeName(again.node, l.addr(again.node)), plain(key), what))
		}
	}
	if why == nil {
		return nil
	}
	return fmt.Errorf("not lowered, because each lease has to end within %s: %s. Call again when all nodes can be read, and such leases are over: lockctl ls lists them, lockctl release ends one whose holder is gone",
		brief(ttl), strings.Join(why, "; "))
}

// again reads a key once more, and the clock with it: when 512 were read in one request, others may have been granted since the
// clock was.
func (l *lowering) again(ctx context.Context, r reading) (reading, error) {
	pipe := l.clients[r.node].Pipeline()
	at, got := pipe.Time(ctx), pipe.GetRange(ctx, r.name, 0, mostOfALock-1)
	_, _ = pipe.Exec(ctx) // each command has its own error
	r.clock, r.got = at.Val(), got
	return r, at.Err()
}

// outlasts says for how long what a node stores for a key is a lease, if that is for longer than ttl; "" = it is not.
func outlasts(r reading, ttl time.Duration) string {
	text := r.got.(*redis.StringCmd)
	if text.Err() == nil && text.Val() == "" {
		return "" // it is gone
	}
	s, err := wire.ParseStored(text.Val())
	if err != nil || text.Err() != nil {
		return "is not of this version of lockkit, and may be a lease"
	}
	// A cooldown is no lease: its holder has ended. One that was revoked may act until its lease is over.
	cooldown := strings.HasPrefix(s.Owner, wire.KeptTaken) && s.Owner != wire.KeptTaken
	left := s.Expiry.Since(wire.NodeTimeOf(r.clock).Whole())
	if s.Owner == "" || cooldown || left <= ttl {
		return ""
	}
	return "is leased for another " + brief(left)
}
