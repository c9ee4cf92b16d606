package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/slot"
)

func (a *app) ls() *cli.Command {
	return &cli.Command{
		Name:      "ls",
		Usage:     "list the locks that are held",
		ArgsUsage: "[PATTERN]",
		Description: "PATTERN is a glob on the key, as Redis has it: order:*, order:[0-9], ? for one character. " +
			"Quote it for the shell.\n" +
			"Without one, all locks under the prefix are listed. " +
			"Nodes are read by SCAN, which looks at every name on them. Also listed is\n" +
			"what some nodes have a lease of: show says more.\n" +
			"The slots of a semaphore follow its key, and PATTERN is a glob on that key: api, slot 2 of api.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() > 1 {
				return usagef("ls takes one pattern: quote it, so that the shell leaves it alone")
			}

			return a.withFleet(ctx, cmd, a.openToInspect, func(ctx context.Context, f *fleet) error {
				return a.listLocks(ctx, cmd, f)
			})
		},
	}
}

// lsJSON is the output of ls.
type lsJSON struct {
	Locks  []lockJSON `json:"locks"`
	Silent []nodeJSON `json:"silent,omitempty"` // nodes that were not read, or not completely
}

type lockJSON struct {
	Key    string      `json:"key"`
	SlotOf string      `json:"slot_of,omitempty"` // the key of the semaphore, if the lock is one of its slots
	Slot   int         `json:"slot,omitempty"`    // the number of that slot; slot 0 is the key of the semaphore
	State  string      `json:"state"`             // held, partial or unknown, as in the output of show
	Holder *holderJSON `json:"holder,omitempty"`
	LeftMS int64       `json:"left_ms,omitempty"`
	Nodes  []int       `json:"nodes"` // nodes with the holder's lease; without a holder, nodes with any lease

	Waiters int `json:"waiters,omitempty"` // waiting processes; those that wait for a slot may wait for other slots, too
}

type nodeJSON struct {
	Node  int    `json:"node"`
	Addr  string `json:"addr,omitempty"`
	Error string `json:"error"`
}

func (a *app) listLocks(ctx context.Context, cmd *cli.Command, f *fleet) error {
	pattern := cmp.Or(cmd.Args().First(), "*")
	states, unread := f.readLeases(ctx, pattern)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	out := lsJSON{Locks: []lockJSON{}, Silent: f.unreadJSON(unread)}
	t := newLockTable()
	for _, s := range states {
		out.Locks = append(out.Locks, s.toLockJSON())
		t.add(s.row()...)
	}

	var err error
	read := len(f.clients) - len(unread)
	switch {
	case asJSON(cmd):
		err = a.printJSON(&out)
	case len(t.rows) > 0:
		a.printTable(t)
	case read == 0: // reportUnread says so
	case read < f.quorum():
		a.printf("%d of %d nodes were read, too few to say that nothing is held.", read, len(f.clients))
	default:
		a.printf("No lock under %s that matches %s is held.", quoteIfNeeded(f.KeyPrefix()), quoteIfNeeded(pattern))
	}
	return errors.Join(err, a.reportUnread(f, unread))
}

// newLockTable returns an empty table of locks. keyState.row makes its rows.
func newLockTable() table {
	return table{head: []string{"KEY", "STATE", "HOLDER", "TOKEN", "HELD FOR", "LEFT", "NODES", "WAITING"}}
}

// maxLockBytes is the number of bytes of a lock that are read. They include everything but the result of its record.
const maxLockBytes = 1024

// readLock reads a lock without the result of its record.
func readLock(ctx context.Context, pipe redis.Pipeliner, name string) redis.Cmder {
	return pipe.GetRange(ctx, name, 0, maxLockBytes-1)
}

// readLeases returns the keys on which any node has a lease, sorted, with the lengths of their queues, and the errors of
// nodes that were not read.
func (f *fleet) readLeases(ctx context.Context, pattern string) ([]*keyState, map[int]error) {
	parse := inside.Stored.(func(string, time.Time) core.KeyOnNode)
	combine := inside.Settled.(func([]core.KeyOnNode) core.KeyState)

	nodesOf := map[string][]core.KeyOnNode{} // by key
	unread := f.scanNodes(ctx, scan{
		patterns: f.patternsOf(pattern),
		query:    readLock,
		visit: func(r reading) {
			kind, key := f.keys.Kind(r.name)
			n := parse(r.reply.(*redis.StringCmd).Val(), r.serverTime)
			if kind != "lock" || n.Holder == nil || isSlotOfAnother(key, pattern) {
				return
			}

			if nodesOf[key] == nil {
				nodesOf[key] = make([]core.KeyOnNode, len(f.clients))
				for i := range nodesOf[key] {
					nodesOf[key][i].Verdict = core.VerdictGone
				}
			}
			nodesOf[key][r.node] = n
		},
	})

	var states []*keyState
	for _, key := range slices.SortedFunc(maps.Keys(nodesOf), compareSlots) {
		nodes := nodesOf[key]

		for i, err := range unread {
			if nodes[i].Holder == nil { // a lease that was read before the node failed counts
				nodes[i].Verdict = core.VerdictFailed
				nodes[i].Err = err
			}
		}
		states = append(states, f.newKeyState(key, combine(nodes)))
	}

	f.readQueues(ctx, states)
	return states, unread
}

// holderNodes returns the nodes with the holder's lease or, if there is no holder, the nodes with any lease.
func (s *keyState) holderNodes() []int {
	if s.Holder == nil {
		return s.nodesWhere(hasLease)
	}
	return s.nodesWhere(s.hasHoldersLease)
}

func (s *keyState) toLockJSON() lockJSON {
	slotOf, number, _ := slot.Parse(s.Key)
	return lockJSON{
		Key:    s.Key,
		SlotOf: slotOf,
		Slot:   number,
		State:  s.State,
		Holder: newHolderJSON(s.Holder),
		LeftMS: s.Left.Milliseconds(),
		Nodes:  s.holderNodes(),

		Waiters: s.maxWaiters(),
	}
}

// row returns the cells of the key in a table of newLockTable.
func (s *keyState) row() []string {
	holder, token, heldFor, left := "-", "-", "-", "-"

	if h := s.Holder; h != nil {
		holder = holderName(h)
		token = tokenText(h)
		if !h.Since.IsZero() {
			heldFor = formatDuration(max(0, time.Since(h.Since)))
		}
	}
	if s.Left > 0 {
		left = formatDuration(s.Left)
	}

	nodes := fmt.Sprintf("%d/%d", len(s.holderNodes()), len(s.Nodes))
	return []string{lockName(s.Key), s.State, holder, token, heldFor, left, nodes, strconv.Itoa(s.maxWaiters())}
}

// reportUnread prints a warning for each node that was not read. It returns an error if there is such a node.
func (a *app) reportUnread(f *fleet, unread map[int]error) error {
	if len(unread) == 0 {
		return nil
	}

	for _, n := range f.unreadJSON(unread) {
		fmt.Fprintf(a.stderr, "lockctl: not read: %s: %s\n", nodeName(n.Node, n.Addr), n.Error)
	}

	denied := 0
	for _, err := range unread {
		if redis.HasErrorPrefix(err, "NOPERM") {
			denied++
		}
	}
	if denied > 0 {
		fmt.Fprintf(a.stderr, "lockctl: %s\n", operatorRightsHint)
	}

	switch len(f.clients) {
	case denied: // doctor would find no problem
		return errAllDenied
	case len(unread):
		return fmt.Errorf("%w; lockctl doctor says what is wrong", errNoNodeAnswered)
	}
	return errProblemFound
}

var (
	errNoNodeAnswered = errors.New("no node has answered")
	errAllDenied      = errors.New("no node lets this user look")
)

func (f *fleet) unreadJSON(unread map[int]error) (list []nodeJSON) {
	for i := range f.clients {
		if err := unread[i]; err != nil {
			name := nodeName(i, f.addr(i))
			list = append(list, nodeJSON{Node: i, Addr: f.addr(i), Error: withoutNodeName(err, name)})
		}
	}
	return list
}
