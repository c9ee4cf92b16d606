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

// States of a key. They are values of the field state in JSON.
const (
	stateHeld      = "held"      // a quorum of nodes has a lease of one holder
	stateUnknown   = "unknown"   // a holder may exist, but no quorum of nodes can tell
	statePartial   = "partial"   // some nodes have a lease, but no quorum can have the same one
	stateKept      = "kept"      // without a holder, but not free yet (Cooldown, Revoke)
	stateCompleted = "completed" // without a holder, and recorded as done
	stateFree      = "free"
)

// A keyState is the state of a key, combined from all nodes.
type keyState struct {
	core.KeyState
	Key     string
	State   string
	Left    time.Duration // of the lease, or of the cooldown
	Waiters []int         // length of the queue on each node
	Slots   []*keyState   // of the semaphore: the slots but the key itself on which any node has a lease
	Known   bool          // some node stores something for the key
}

// readKey reads the state of a key from all nodes.
func (f *fleet) readKey(ctx context.Context, key string) (*keyState, error) {
	state, err := f.Inspect(ctx, key)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// If the nodes are unavailable, the state says what each of them answered.
	if err != nil && !errors.Is(err, core.ErrUnavailable) {
		return nil, err
	}

	s := f.newKeyState(key, state)

	known := make([]bool, len(s.Nodes))
	var readers sync.WaitGroup
	for i := range s.Nodes {
		// Asking a silent node again would only take another timeout.
		if hasAnswered(&s.Nodes[i]) {
			readers.Go(func() { s.Waiters[i], known[i] = f.readWaiters(ctx, i, key) })
		}
	}
	readers.Wait()

	s.Known = slices.Contains(known, true)
	return s, nil
}

// readWaiters returns the number of waiters in the node's queue, and whether the node stores anything for the key.
func (f *fleet) readWaiters(ctx context.Context, node int, key string) (waiters int, known bool) {
	pipe := f.clients[node].Pipeline()
	queue := pipe.ZCard(ctx, f.keys.Waiters(key))
	lock := pipe.Exists(ctx, f.keys.Resource(key))
	_, _ = pipe.Exec(ctx) // the counts of a node that fails stay 0
	return int(queue.Val()), queue.Val()+lock.Val() > 0
}

// readQueues sets the lengths of the queues of some keys, as far as the nodes tell.
func (f *fleet) readQueues(ctx context.Context, states []*keyState) {
	var readers sync.WaitGroup
	for i := range f.clients {
		readers.Go(func() {
			for batch := range slices.Chunk(states, scanBatch) {
				err := f.readQueuesOf(ctx, i, batch)
				if !goredis.Answered(err) { // the next batch would only take another timeout
					return
				}
			}
		})
	}
	readers.Wait()
}

// readQueuesOf sets the lengths of the queues on one node. A length that the node does not tell stays 0.
func (f *fleet) readQueuesOf(ctx context.Context, node int, states []*keyState) error {
	pipe := f.clients[node].Pipeline()
	lengths := map[*keyState]*redis.IntCmd{}
	for _, s := range states {
		if hasAnswered(&s.Nodes[node]) { // asking a silent node again would only take another timeout
			lengths[s] = pipe.ZCard(ctx, f.keys.Waiters(s.Key))
		}
	}

	_, err := pipe.Exec(ctx)
	for s, length := range lengths {
		s.Waiters[node] = int(length.Val())
	}
	return err
}

// newKeyState returns a keyState with State and Left set.
func (f *fleet) newKeyState(key string, state core.KeyState) *keyState {
	s := &keyState{
		KeyState: state,
		Key:      key,
		Waiters:  make([]int, len(state.Nodes)),
	}

	answered := len(s.nodesWhere(hasAnswered))
	hasLeases := len(s.nodesWhere(hasLease)) > 0

	var cooldowns []time.Duration
	for _, n := range s.Nodes {
		if n.Holder == nil && n.Verdict == core.VerdictHeld {
			cooldowns = append(cooldowns, n.Remaining)
		}
	}

	quorum := f.quorum()
	granting := answered - len(cooldowns) // if no node has a lease

	switch {
	case s.Holder != nil:
		s.State = stateHeld
		s.Left = s.Holder.Remaining
	case answered < quorum || s.Unknown():
		s.State = stateUnknown
	case hasLeases:
		s.State = statePartial
	case granting < quorum:
		// The cooldown is over for a quorum when enough of the shortest cooldowns are.
		slices.Sort(cooldowns)
		s.State = stateKept
		s.Left = cooldowns[quorum-granting-1]
	case s.Record != nil:
		s.State = stateCompleted
	default:
		s.State = stateFree
	}
	return s
}

// maxWaiters returns the length of the longest queue.
func (s *keyState) maxWaiters() int { return slices.Max(s.Waiters) }

// nodesWhere returns the indexes of the nodes for which cond returns true.
func (s *keyState) nodesWhere(cond func(*core.KeyOnNode) bool) (nodes []int) {
	for i := range s.Nodes {
		if cond(&s.Nodes[i]) {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// hasAnswered reports whether the node answered.
func hasAnswered(n *core.KeyOnNode) bool { return n.Err == nil }

// isSilent reports whether the node did not answer.
func isSilent(n *core.KeyOnNode) bool { return !hasAnswered(n) }

// isDenied reports whether the node denies the command to this user.
func isDenied(n *core.KeyOnNode) bool { return redis.HasErrorPrefix(n.Err, "NOPERM") }

// mayHaveForgotten reports whether the node is in quarantine, because it may have lost its data.
func mayHaveForgotten(n *core.KeyOnNode) bool { return n.Verdict == core.VerdictQuarantined }

// hasLease reports whether the node has a lease on the key, of any holder.
func hasLease(n *core.KeyOnNode) bool { return n.Holder != nil }

// hasHoldersLease reports whether the node has the lease of the holder. It is false if the key has no holder.
func (s *keyState) hasHoldersLease(n *core.KeyOnNode) bool {
	return n.Holder != nil && s.Holder != nil && n.Holder.Attempt == s.Holder.Attempt
}
