package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/goredis"
)

// What becomes of a key, in one word. It is the state field of the JSON.
const (
	stateHeld      = "held"      // a quorum of nodes has a lease of one holder
	stateUnknown   = "unknown"   // somebody may hold it of whom no quorum of nodes tells
	statePartial   = "partial"   // some nodes have a lease, and no quorum can have the same one
	stateKept      = "kept"      // nobody holds it, and it is not free yet (Cooldown, Revoke)
	stateCompleted = "completed" // free, and recorded as done
	stateFree      = "free"
)

// A keyState is what the nodes have of a key, put together.
type keyState struct {
	core.KeyState
	Key     string
	State   string
	Left    time.Duration // of the holder, or for how long the key is kept
	Waiters []int         // by node
	Known   bool          // some node has something of the key
}

func (f *fleet) quorum() int { return len(f.clients)/2 + 1 }

// key reads one key from all nodes.
func (f *fleet) key(ctx context.Context, key string) (*keyState, error) {
	state, err := f.Inspect(ctx, key)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, core.ErrUnavailable) {
		return nil, err
	}
	s := f.newKeyState(key, state)
	var all sync.WaitGroup
	known := make([]bool, len(s.Nodes))
	for i := range s.Nodes {
		if heard(&s.Nodes[i]) {
			all.Go(func() { s.Waiters[i], known[i] = f.beside(ctx, i, key) })
		}
	}
	all.Wait()
	s.Known = slices.Contains(known, true)
	return s, nil
}

// beside is what a node has beside the lock: how many wait, and whether it has anything of the key.
func (f *fleet) beside(ctx context.Context, node int, key string) (waiters int, known bool) {
	pipe := f.clients[node].Pipeline()
	queue := pipe.ZCard(ctx, f.keys.Waiters(key))
	lock := pipe.Exists(ctx, f.keys.Resource(key))
	_, _ = pipe.Exec(ctx) // what a node does not tell is not shown
	return int(queue.Val()), queue.Val()+lock.Val() > 0
}

// newKeyState says what becomes of a key.
func (f *fleet) newKeyState(key string, state core.KeyState) *keyState {
	s := &keyState{KeyState: state, Key: key, Waiters: make([]int, len(state.Nodes))}
	var kept []time.Duration
	told, leases := 0, false
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if heard(n) {
			told++
		}
		if n.Holder != nil {
			leases = true
		} else if n.Verdict == core.VerdictHeld {
			kept = append(kept, n.Rest)
		}
	}
	quorum := f.quorum()
	switch {
	case s.Holder != nil:
		s.State, s.Left = stateHeld, s.Holder.Left
	case told < quorum || s.Unknown():
		s.State = stateUnknown
	case leases:
		s.State = statePartial
	case told-len(kept) < quorum: // too few to grant it
		slices.Sort(kept)
		s.State, s.Left = stateKept, kept[quorum-(told-len(kept))-1]
	case s.Record != nil:
		s.State = stateCompleted
	default:
		s.State = stateFree
	}
	return s
}

// heard reports whether the node has told.
func heard(n *core.KeyOnNode) bool { return n.Err == nil }

// waiting is the most that a node has.
func (s *keyState) waiting() int { return slices.Max(s.Waiters) }

// which are the nodes of which it is so.
func (s *keyState) which(is func(*core.KeyOnNode) bool) (nodes []int) {
	for i := range s.Nodes {
		if is(&s.Nodes[i]) {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// lost reports whether the node may have forgotten what it had.
func lost(n *core.KeyOnNode) bool { return n.Verdict == core.VerdictQuarantined }

// hasLease reports whether the node has a lease, whoever's.
func hasLease(n *core.KeyOnNode) bool { return n.Holder != nil }

// silent reports whether the node has not told.
func silent(n *core.KeyOnNode) bool { return !heard(n) }

// denied reports whether the node refuses this user.
func denied(n *core.KeyOnNode) bool { return redis.HasErrorPrefix(n.Err, "NOPERM") }

// addr names a node in tables.
func (f *fleet) addr(i int) string { return goredis.AddrOf(f.clients[i]) }
