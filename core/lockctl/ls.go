package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
)

func (a *app) ls() *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list the locks that are held", ArgsUsage: "[PATTERN]",
		Description: "PATTERN is a glob on the key, as Redis has it: order:*, order:[0-9], ? for one character. Quote it for the shell.\n" +
			"Without one, all locks under the prefix are listed. Nodes are read by SCAN, which looks at every name on them. Also listed is\n" +
			"what some nodes have a lease of: show says more.",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Len() > 1 {
				return usagef("ls takes one pattern: quote it, so that the shell leaves it alone")
			}
			return a.with(ctx, cmd, a.look, func(ctx context.Context, f *fleet) error { return a.list(ctx, cmd, f) })
		},
	}
}

// lsJSON is what ls prints.
type lsJSON struct {
	Locks  []lockJSON `json:"locks"`
	Silent []nodeJSON `json:"silent,omitempty"` // nodes that were not read, or not to their end
}

type lockJSON struct {
	Key    string      `json:"key"`
	State  string      `json:"state"` // held, partial, unknown: as of show
	Holder *holderJSON `json:"holder,omitempty"`
	LeftMS int64       `json:"left_ms,omitempty"`
	Nodes  []int       `json:"nodes"` // that have it so
}

type nodeJSON struct {
	Node  int    `json:"node"`
	Addr  string `json:"addr,omitempty"`
	Error string `json:"error"`
}

func (a *app) list(ctx context.Context, cmd *cli.Command, f *fleet) error {
	pattern := cmd.Args().First()
	if pattern == "" {
		pattern = "*"
	}
	keys, silent := f.held(ctx, pattern)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	out := lsJSON{Locks: []lockJSON{}, Silent: f.silentJSON(silent)}
	t := table{head: []string{"KEY", "STATE", "HOLDER", "TOKEN", "HELD FOR", "LEFT", "NODES"}}
	for _, s := range keys {
		out.Locks = append(out.Locks, lockJSON{Key: s.Key, State: s.State, Holder: newHolderJSON(s.Holder), LeftMS: s.Left.Milliseconds(), Nodes: s.having()})
		t.add(s.row()...)
	}
	var err error
	switch {
	case asJSON(cmd):
		err = a.json(&out)
	case len(t.rows) > 0:
		a.table(t)
	case len(silent) == len(f.clients): // which is told below
	case len(f.clients)-len(silent) < f.quorum():
		a.say("%d of %d nodes were read, too few to say that nothing is held.", len(f.clients)-len(silent), len(f.clients))
	default:
		a.say("No lock under %s that matches %s is held.", plain(f.KeyPrefix()), plain(pattern))
	}
	return errors.Join(err, a.tellSilent(f, silent))
}

// mostOfALock is how many bytes of a lock are read: all but the result of its record.
const mostOfALock = 1024

// held are the keys of which a node has a lease, sorted, and why nodes were not read.
func (f *fleet) held(ctx context.Context, pattern string) ([]*keyState, map[int]error) {
	judge, settle := inside.Stored.(func(string, time.Time) core.KeyOnNode), inside.Settled.(func([]core.KeyOnNode) core.KeyState)
	found := map[string][]core.KeyOnNode{}
	silent := f.walk(ctx, f.keys.Resources(pattern), func(pipe redis.Pipeliner, name string) redis.Cmder {
		return pipe.GetRange(ctx, name, 0, mostOfALock-1)
	}, func(r reading) {
		kind, key := f.keys.Kind(r.name)
		n := judge(r.got.(*redis.StringCmd).Val(), r.clock)
		if kind != "lock" || n.Holder == nil {
			return
		}
		if found[key] == nil {
			found[key] = make([]core.KeyOnNode, len(f.clients))
			for i := range found[key] {
				found[key][i].Verdict = core.VerdictGone
			}
		}
		found[key][r.node] = n
	})
	var list []*keyState
	for _, key := range slices.Sorted(maps.Keys(found)) {
		nodes := found[key]
		for i, err := range silent {
			if nodes[i].Holder == nil { // what it told before it fell silent counts
				nodes[i].Verdict, nodes[i].Err = core.VerdictFailed, err
			}
		}
		list = append(list, f.newKeyState(key, settle(nodes)))
	}
	return list, silent
}

// having are the nodes that have the holder's lease, or any where there is none.
func (s *keyState) having() []int {
	return s.which(func(n *core.KeyOnNode) bool {
		return n.Holder != nil && (s.Holder == nil || n.Holder.Attempt == s.Holder.Attempt)
	})
}

func (s *keyState) row() []string {
	who, token, held, left := "-", "-", "-", "-"
	if h := s.Holder; h != nil {
		who, token = identity(h), tokenText(h)
		if !h.Since.IsZero() {
			held = brief(max(0, time.Since(h.Since)))
		}
	}
	if s.Left > 0 {
		left = brief(s.Left)
	}
	return []string{plain(s.Key), s.State, who, token, held, left, fmt.Sprintf("%d/%d", len(s.having()), len(s.Nodes))}
}

// tellSilent warns of nodes that have not told, and is an error where there are any.
func (a *app) tellSilent(f *fleet, silent map[int]error) error {
	if len(silent) == 0 {
		return nil
	}
	for _, n := range f.silentJSON(silent) {
		fmt.Fprintf(a.stderr, "lockctl: not read: %s: %s\n", nodeName(n.Node, n.Addr), n.Error)
	}
	denied := 0
	for _, err := range silent {
		if redis.HasErrorPrefix(err, "NOPERM") {
			denied++
		}
	}
	if denied > 0 {
		fmt.Fprintf(a.stderr, "lockctl: %s\n", askForRights)
	}
	switch len(f.clients) {
	case denied: // doctor would find nothing wrong
		return errDenied
	case len(silent):
		return fmt.Errorf("%w; lockctl doctor says what is wrong", errNobody)
	}
	return errFound
}

var (
	errNobody = errors.New("no node has answered")
	errDenied = errors.New("no node lets this user look")
)

func (f *fleet) silentJSON(silent map[int]error) (list []nodeJSON) {
	for i := range f.clients {
		if err := silent[i]; err != nil {
			list = append(list, nodeJSON{Node: i, Addr: f.addr(i), Error: own(err, nodeName(i, f.addr(i)))})
		}
	}
	return list
}
