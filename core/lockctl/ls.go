package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
)

func (a *app) ls() *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list the locks that are held", ArgsUsage: "[PATTERN]",
		Description: "PATTERN is a glob on the key, as Redis has it: order:*, order:[0-9], ? for one character. Quote it for the shell.\n" +
			"Without one, all locks under the prefix are listed. Nodes are read by SCAN, which looks at every name on them.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "also keys that are kept, completed, or free with a fencing counter that rests"}},
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
	Key     string      `json:"key"`
	State   string      `json:"state"` // held, partial, kept, completed, free, unknown
	Holder  *holderJSON `json:"holder,omitempty"`
	LeftMS  int64       `json:"left_ms,omitempty"`
	Waiters int         `json:"waiters"`
	Nodes   []int       `json:"nodes"` // that have it so
}

type nodeJSON struct {
	Node  int    `json:"node"`
	Addr  string `json:"addr,omitempty"`
	Error string `json:"error"`
}

func (a *app) list(ctx context.Context, cmd *cli.Command, f *fleet) error {
	pattern, all := cmd.Args().First(), cmd.Bool("all")
	if pattern == "" {
		pattern = "*"
	}
	keys, silent, err := f.scanKeys(ctx, pattern, all)
	if err != nil {
		return err
	}
	out := lsJSON{Locks: []lockJSON{}, Silent: f.silentJSON(silent)}
	t := table{head: []string{"KEY", "STATE", "HOLDER", "TOKEN", "HELD FOR", "LEFT", "WAITING", "NODES"}}
	for _, s := range keys {
		if !all && s.Holder == nil && s.State != statePartial && (s.State != stateUnknown || !s.someLease()) {
			continue
		}
		out.Locks = append(out.Locks, s.lockJSON())
		t.add(s.row()...)
	}
	switch {
	case asJSON(cmd):
		err = a.json(out)
	case len(t.rows) > 0:
		a.table(t)
	case len(silent) == len(f.clients): // which is told below
	case len(f.clients)-len(silent) < f.quorum():
		a.say("%d of %d nodes were read, too few to say that nothing is held.", len(f.clients)-len(silent), len(f.clients))
	default:
		a.say("No lock under %s that matches %s%s.", plain(f.KeyPrefix()), plain(pattern), map[bool]string{false: " is held"}[all])
	}
	return errors.Join(err, a.tellSilent(f, silent))
}

// scanKeys puts together what the nodes have under pattern, by key; without all, of keys with a lease.
func (f *fleet) scanKeys(ctx context.Context, pattern string, all bool) ([]*keyState, map[int]error, error) {
	keys, silent := map[string]*keyState{}, map[int]error{}
	waiters := map[string]int{}
	for found, err := range f.Scan(ctx, pattern) {
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case isFinal(err):
			return nil, nil, err
		case err != nil:
			silent[found.Node] = err
			continue
		case found.Kind == core.FoundWaiters && !all:
			waiters[found.Key] = max(waiters[found.Key], found.Waiters)
			continue
		case found.Kind == core.FoundLock && !all && found.State.Holder == nil:
			continue
		}
		s := keys[found.Key]
		if s == nil {
			s = f.newKeyState(found.Key, nil)
			keys[found.Key] = s
		}
		s.add(found)
	}
	list := make([]*keyState, 0, len(keys))
	for key, s := range keys {
		for i, err := range silent {
			if !s.Nodes[i].There { // what it told before it fell silent counts
				s.Nodes[i].Verdict, s.Nodes[i].Err = core.VerdictFailed, err
			}
		}
		s.settle(f.quorum())
		s.Waiters = max(s.Waiters, waiters[key])
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *keyState) int { return strings.Compare(a.Key, b.Key) })
	return list, silent, nil
}

// someLease reports whether any node has a lease.
func (s *keyState) someLease() bool {
	return slices.ContainsFunc(s.Nodes, func(n onNode) bool { return n.Holder != nil })
}

// having are the nodes that have what the state tells.
func (s *keyState) having() []int {
	have := []int{}
	for i, n := range s.Nodes {
		if n.There && (s.Holder == nil || n.Holder != nil && n.Holder.Attempt == s.Holder.Attempt) {
			have = append(have, i)
		}
	}
	return have
}

func (s *keyState) lockJSON() lockJSON {
	return lockJSON{Key: s.Key, State: s.State, Holder: newHolderJSON(s.Holder), LeftMS: s.Left.Milliseconds(), Waiters: s.Waiters, Nodes: s.having()}
}

func (s *keyState) row() []string {
	who, token, held, left := "-", "-", "-", "-"
	if h := s.Holder; h != nil {
		who, token, held = identity(h), tokenText(h), "-"
		if !h.Since.IsZero() {
			held = brief(max(0, time.Since(h.Since)))
		}
	}
	if s.Left > 0 {
		left = brief(s.Left)
	}
	return []string{plain(s.Key), s.State, who, token, held, left, fmt.Sprint(s.Waiters), fmt.Sprintf("%d/%d", len(s.having()), len(s.Nodes))}
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
