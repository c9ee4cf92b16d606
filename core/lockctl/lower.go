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
		Name:  "lower-max-ttl",
		Usage: "make nodes forget a max TTL that no process uses any more",
		Description: "A node that loses its memory does not vote for the longest max TTL that it has heard of, " +
			"as doctor shows it. This lowers the\n" +
			"longest to --max-ttl, the max TTL of the services.\n\n" +
			"Stop all processes that lock on these nodes before, and start them after: " +
			"one that runs has heard of the longer max TTL, also\n" +
			"where it never used it, and tells the nodes of it again. doctor shows a value that came back, " +
			"and since when.\n\n" +
			"It is refused unless all nodes answer and vote, no lease lasts for longer than --max-ttl, " +
			"and no process names a longer one\n" +
			"meanwhile.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef("lower-max-ttl takes no arguments: it lowers the value to --max-ttl on all nodes")
			}

			c := change{name: "the lowering", howToCheck: "look with lockctl doctor, and call again"}
			return a.withFleetToChange(ctx, cmd, a.openToInspect, c, func(ctx context.Context, f *fleet) error {
				before, after, err := f.lowerLongest(ctx)
				if err != nil {
					return err
				}
				return a.printLowered(cmd, before, after)
			})
		},
	}
}

func (a *app) printLowered(cmd *cli.Command, before, after time.Duration) error {
	switch {
	case asJSON(cmd):
		return a.printJSON(&lowerJSON{MaxTTLMS: after.Milliseconds(), WasMS: before.Milliseconds()})
	case before == after:
		a.printf("Nothing has changed: no node has heard of a longer max TTL than %s.", formatDuration(after))
	default:
		a.printf("The longest max TTL that nodes know of is %s now, and was %s. "+
			"A process that has run meanwhile brings %s back: lockctl doctor shows it.",
			formatDuration(after), formatDuration(before), formatDuration(before))
	}
	return nil
}

// lowerJSON is the output of lower-max-ttl.
type lowerJSON struct {
	MaxTTLMS int64 `json:"max_ttl_ms"` // the longest max TTL known to the nodes
	WasMS    int64 `json:"was_ms"`     // the longest before; equal to max_ttl_ms if nothing has changed
}

// lowerLongest lowers the longest max TTL known to the nodes to the max TTL of the services, and returns the longest
// before and after. Each step must succeed on all nodes before the next begins, as in docs/models/maxttl.pml.
func (f *fleet) lowerLongest(ctx context.Context) (before, after time.Duration, err error) {
	group, leave, err := inside.Enter(ctx, f.Locker, nil)
	if err != nil {
		return 0, 0, err
	}
	defer leave()

	if !group.Conf.Guarded {
		return 0, 0, usagef("the restart guard is off (fewer than three nodes, or --guard=false), " +
			"so no node has heard of a max TTL: give --guard if the services have it")
	}

	l := &lowering{fleet: f, group: group}
	err = l.run(ctx)
	if err != nil {
		l.unmark()
	}
	return group.Head.Load().MaxTTL, group.Conf.MaxTTL, err
}

// A lowering is one execution of lower-max-ttl.
type lowering struct {
	*fleet
	group *node.Group
	marks [][]quorum.Vote // by guard record, the votes of the nodes when they were marked
}

func (l *lowering) run(ctx context.Context) error {
	err := l.mark(ctx)
	if err != nil {
		return err
	}
	needsLowering := l.group.Head.Load().MaxTTL > l.group.Conf.MaxTTL
	if !needsLowering {
		return nil
	}

	err = l.checkLeases(ctx, l.group.Conf.MaxTTL)
	if err != nil {
		return err
	}

	// If a node lost its memory before its leases were read, a long lease may have been missed, and the value must not
	// be lowered on any node.
	err = l.askAll(ctx, (*node.Bucket).CheckMarks)
	if err != nil {
		return err
	}

	err = l.askAll(ctx, (*node.Bucket).Lower)
	if err != nil {
		return fmt.Errorf("%w. The value may be lowered on other nodes, which does no harm", err)
	}
	return nil
}

// mark marks all nodes. If a node reports a longer max TTL than the requests named, mark begins again, so that every
// node is marked by a request that names it.
func (l *lowering) mark(ctx context.Context) error {
	for {
		known := l.group.Head.Load()

		err := l.markOnce(ctx)
		if err != nil {
			return err
		}

		// If a reply reported a longer max TTL, the requests before it did not name that.
		if l.group.Head.Load() == known {
			return nil
		}
	}
}

// markOnce marks each guard record on all nodes, and stores the votes in l.marks.
func (l *lowering) markOnce(ctx context.Context) error {
	l.marks = make([][]quorum.Vote, len(l.group.Buckets))
	for i, b := range l.group.Buckets {
		votes, ok := b.Mark(ctx)
		if !ok {
			return inside.ContextError(ctx)
		}

		if err := l.refusal(votes); err != nil {
			return err
		}
		l.marks[i] = votes
	}
	return nil
}

// A bucketRequest is a request to all nodes for one guard record. ok is false if ctx ended before the nodes answered.
type bucketRequest func(b *node.Bucket, ctx context.Context, marks []quorum.Vote) (votes []quorum.Vote, ok bool)

// askAll sends a request to all nodes for each guard record that was marked.
func (l *lowering) askAll(ctx context.Context, request bucketRequest) error {
	for i, b := range l.group.Buckets {
		votes, ok := request(b, ctx, l.marks[i])
		if !ok {
			return inside.ContextError(ctx)
		}

		if err := l.refusal(votes); err != nil {
			return err
		}
	}
	return nil
}

// unmark removes the marks from all nodes. Marks that it cannot remove expire.
func (l *lowering) unmark() {
	//nolint:forbidigo // the command's context may have ended; the node timeout limits this
	ctx := context.Background()

	var requests sync.WaitGroup
	for _, b := range l.group.Buckets {
		requests.Go(func() { b.Unmark(ctx) })
	}
	requests.Wait()
}

// refusal returns an error with every reason in votes not to lower the value, or nil if there is none.
func (l *lowering) refusal(votes []quorum.Vote) error {
	var reasons []string
	var contradicting []int
	for i := range votes {
		v := &votes[i]
		name := nodeName(i, l.addr(i))

		switch v.Verdict {
		case wire.Granted:
		case wire.Gone:
			contradicting = append(contradicting, i)
		case wire.Quarantined:
			reasons = append(reasons, fmt.Sprintf("%s is in quarantine for another %s, because it may have forgotten a lease: "+
				"call again after that, and restart no node before",
				name, formatDuration(v.Remaining)))
		default:
			reasons = append(reasons, fmt.Sprintf("%s: %s: all nodes have to answer, lockctl doctor says what is wrong",
				name, withoutNodeName(errors.New(v.Explain()), name)))
		}
	}

	if contradicting != nil {
		reasons = append(reasons, fmt.Sprintf("a process that uses, or has heard of, a longer max TTL than %s has asked %s "+
			"meanwhile (or another lower-max-ttl has, or the memory was lost): "+
			"stop all processes that lock on these nodes, and call again",
			formatDuration(l.group.Conf.MaxTTL), nodeList(contradicting)))
	}

	if reasons == nil {
		return nil
	}
	return fmt.Errorf("not lowered: %s", strings.Join(reasons, "; "))
}

// maxNamed limits an error that names keys: no key is added to this many reasons.
const maxNamed = 3

// checkLeases returns an error that names keys whose leases last longer than ttl, or nil if no node has such a lease. A
// value that this version cannot read counts as such a lease.
func (l *lowering) checkLeases(ctx context.Context, ttl time.Duration) error {
	longLeases, unread := l.findLongLeases(ctx, ttl)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	var reasons []string
	for _, n := range l.unreadJSON(unread) {
		reasons = append(reasons, fmt.Sprintf("%s was not read: %s", nodeName(n.Node, n.Addr), n.Error))
	}

	for _, lease := range longLeases {
		if len(reasons) >= maxNamed {
			break
		}
		if reason := l.checkAgain(ctx, lease, ttl); reason != "" {
			reasons = append(reasons, reason)
		}
	}

	if reasons == nil {
		return nil
	}
	return fmt.Errorf("not lowered, because each lease has to end within %s: %s. "+
		"Call again when all nodes can be read, and such leases are over: "+
		"lockctl ls lists them, lockctl release ends one whose holder is gone",
		formatDuration(ttl), strings.Join(reasons, "; "))
}

// findLongLeases returns the leases that seem to last longer than ttl, without replies, and the errors of nodes that
// were not read.
func (l *lowering) findLongLeases(ctx context.Context, ttl time.Duration) (leases []reading, unread map[int]error) {
	unread = l.scanNodes(ctx, scan{
		patterns: l.keys.Resources("*"),
		query:    readLock,
		visit: func(r reading) {
			kind, _ := l.keys.Kind(r.name)
			if kind == "lock" && longLeaseProblem(r, ttl) != "" {
				leases = append(leases, reading{node: r.node, name: r.name})
			}
		},
	})
	return leases, unread
}

// checkAgain reads a lease again, and returns a reason not to lower the value, or "" if it is not longer than ttl.
func (l *lowering) checkAgain(ctx context.Context, lease reading, ttl time.Duration) string {
	current, err := l.reread(ctx, lease)
	node := nodeName(current.node, l.addr(current.node))
	if err != nil {
		return fmt.Sprintf("%s was not read: %s", node, oneLine(err))
	}

	problem := longLeaseProblem(current, ttl)
	if problem == "" {
		return ""
	}
	_, key := l.keys.Kind(current.name)
	return fmt.Sprintf("on %s, %s %s", node, quoteIfNeeded(key), problem)
}

// reread reads a key and the server's clock again. In the scan, up to 512 keys were read after the clock, and a lease
// may have been granted in between, so that it seemed to last too long.
func (l *lowering) reread(ctx context.Context, r reading) (reading, error) {
	pipe := l.clients[r.node].Pipeline()
	serverTime := pipe.Time(ctx)
	r.reply = readLock(ctx, pipe, r.name)
	_, _ = pipe.Exec(ctx) // each command has its own error

	r.serverTime = serverTime.Val()
	return r, serverTime.Err()
}

// longLeaseProblem describes the lease in a reading if it lasts longer than ttl. Otherwise it returns "".
func longLeaseProblem(r reading, ttl time.Duration) string {
	text := r.reply.(*redis.StringCmd)
	wasDeleted := text.Err() == nil && text.Val() == ""
	if wasDeleted {
		return ""
	}

	stored, err := wire.ParseStored(text.Val())
	if err != nil || text.Err() != nil {
		return "is not of this version of lockkit, and may be a lease"
	}

	// A key in cooldown has no lease: its holder released it. After a revocation the holder may act until its lease
	// ends.
	inCooldown := strings.HasPrefix(stored.Owner, wire.CooldownPrefix) && stored.Owner != wire.CooldownPrefix
	if stored.Owner == "" || inCooldown {
		return ""
	}

	left := stored.Expiry.Since(wire.NodeTimeOf(r.serverTime).TruncateToMillis())
	if left <= ttl {
		return ""
	}
	return "is leased for another " + formatDuration(left)
}
