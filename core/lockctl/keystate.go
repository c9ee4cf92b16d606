package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// What becomes of a key, in one word. It is the state field of the JSON.
const (
	stateHeld      = "held"      // a quorum of nodes has a lease of one holder
	statePartial   = "partial"   // some nodes have a lease, and no quorum the same one
	stateKept      = "kept"      // nobody holds it, and it is not free yet (Cooldown)
	stateCompleted = "completed" // free, and recorded as done
	stateFree      = "free"
	stateUnknown   = "unknown" // no quorum of nodes has answered
)

// A keyState is what the nodes have of a key, put together.
type keyState struct {
	Key     string
	State   string
	Holder  *core.Holder  // of a quorum
	Left    time.Duration // of the holder, or for how long the key is kept
	Record  *core.Record  // that a quorum has, without its result
	Waiters int           // the most that a node has
	Nodes   []onNode
}

// An onNode is what one node has of a key.
type onNode struct {
	core.KeyOnNode
	There   bool          // it has something of the key
	TTL     time.Duration // of the key in Redis
	Waiters int
}

func (f *fleet) quorum() int { return len(f.clients)/2 + 1 }

// newKeyState is the state of a key of which nothing was found.
func (f *fleet) newKeyState(key string, silent map[int]error) *keyState {
	s := &keyState{Key: key, Nodes: make([]onNode, len(f.clients))}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Node, n.Addr, n.Verdict = i, f.addr(i), core.VerdictGone
		if err := silent[i]; err != nil {
			n.Verdict, n.Err = core.VerdictFailed, err
		}
	}
	return s
}

// add notes what was found.
func (s *keyState) add(found core.Found) {
	n := &s.Nodes[found.Node]
	switch found.Kind {
	case core.FoundLock:
		n.KeyOnNode, n.There, n.TTL = found.State, true, found.TTL
	case core.FoundWaiters:
		n.Waiters = found.Waiters
	default: // Scan finds no others by pattern
	}
}

// key reads one key from all nodes.
func (f *fleet) key(ctx context.Context, key string) (*keyState, error) {
	var all []core.Found
	silent := map[int]error{}
	for found, err := range f.Scan(ctx, literal(key)) {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case isFinal(err):
			return nil, err
		case err != nil:
			silent[found.Node] = err
		default:
			all = append(all, found)
		}
	}
	s := f.newKeyState(key, silent)
	for _, found := range all {
		if s.Nodes[found.Node].Err == nil {
			s.add(found)
		}
	}
	s.settle(f.quorum())
	return s, nil
}

// literal is the glob that matches a key and nothing else.
func literal(key string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(key)
}

// settle says what a quorum of nodes agrees on, by the rules of Locker.Inspect.
func (s *keyState) settle(quorum int) {
	var kept []time.Duration
	holders, records := map[string][]*core.Holder{}, map[uint64]int{}
	heard := 0
	for _, n := range s.Nodes {
		if n.heard() {
			heard++
		}
		s.Waiters = max(s.Waiters, n.Waiters)
		switch {
		case n.Holder != nil:
			holders[n.Holder.Attempt] = append(holders[n.Holder.Attempt], n.Holder)
		case n.Verdict == core.VerdictHeld:
			kept = append(kept, n.Rest)
		}
		if n.Record != nil {
			if records[n.Record.Token]++; records[n.Record.Token] >= quorum {
				s.Record = n.Record
			}
		}
	}
	for _, same := range holders {
		if len(same) >= quorum {
			s.Holder = joined(same, quorum)
			s.Left = s.Holder.Left
		}
	}
	switch {
	case heard < quorum:
		s.State, s.Holder, s.Record, s.Left = stateUnknown, nil, nil, 0
	case s.Holder != nil:
		s.State = stateHeld
	case len(holders) > 0:
		s.State = statePartial
	case heard-len(kept) < quorum: // too few to grant it
		slices.Sort(kept)
		s.State, s.Left = stateKept, kept[quorum-(heard-len(kept))-1]
	case s.Record != nil:
		s.State = stateCompleted
	default:
		s.State = stateFree
	}
}

// heard reports whether the node has told.
func (n *onNode) heard() bool { return n.Err == nil }

// joined is what nodes have of one lease, together. The token counts where a quorum of them has it.
func joined(same []*core.Holder, quorum int) *core.Holder {
	all := *same[0]
	tokens := map[uint64]int{}
	var left []time.Duration
	all.Token, all.Since = 0, time.Time{}
	for _, h := range same {
		left = append(left, h.Left)
		all.By, all.Name, all.Hint, all.Shown = max(all.By, h.By), max(all.Name, h.Name), max(all.Hint, h.Hint), max(all.Shown, h.Shown)
		if tokens[h.Token]++; tokens[h.Token] >= quorum {
			all.Token, all.Since = h.Token, h.Since
		}
	}
	slices.Sort(left)
	all.Left = left[len(left)-quorum]
	return &all
}

// addr names a node in tables.
func (f *fleet) addr(i int) string { return addrOf(f.clients[i]) }
