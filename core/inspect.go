package core

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A KeyState is the state of a key, as reported by the nodes.
type KeyState struct {
	// Holder is the holder of the key. It is nil unless a quorum of nodes has a lease of the same holder that has not
	// run out. If it is nil, the key may be free, kept taken after its release (Cooldown), or held all the same, see
	// Unknown; or some nodes may have it for one caller and some for another. Nodes shows which.
	Holder *Holder
	// Record is the completion record. It is nil unless a quorum of nodes has it, by one ballot and within its
	// retention.
	Record *Record
	Nodes  []KeyOnNode // the answer of each node, in the order given to New
}

// A Holder is the holder of a key, as far as the nodes know. A node that has granted the key to others since, or has
// granted a smaller token, has another token than the rest. For a lease that is just being granted, the token may be
// smaller than the holder's. Since is computed from the token, which comes from the holder's wall clock and always
// grows: if that clock was set back, Since is too late.
type Holder struct {
	Token     uint64        // the fencing token; 0 = not known, because the nodes do not agree on it
	Since     time.Time     // about when the key was granted; zero without a token
	Remaining time.Duration // how long a quorum of nodes keeps the key if the holder vanishes, counted from the answers
	Note      string        // a text about the holder, see the option Note; empty if unknown
	Name      string        // the class of the key, see Name
	Hint      string        // the result of the holder's Observer.Hint; empty if unknown
	Attempt   string        // the nodes' name for the lease
}

// A KeyOnNode is the state of a key on one node.
type KeyOnNode struct {
	NodeReply         // VerdictHeld, VerdictDone, VerdictGone for neither, or why the node has not answered
	Holder    *Holder // of the lease on this node that has not run out, granted by a quorum or not; nil = none
	Record    *Record // the completion record on this node, decided or not, within its retention; nil = none

	ballot uint64 // of the record
}

// Inspect returns the state of key: its holder, and whether it is recorded as completed. It changes nothing, neither
// on the nodes nor for the holder or waiters of the key, so it may be called as often as the nodes can serve it. It
// takes no lock, so its result may be stale on return. Use it for display and monitoring; to act on a key, acquire
// it.
//
// Each node is sent reads only (TIME and GET; with the restart guard also GET for its record, and INFO replication).
// A lease is judged by the node's own clock, so a node that was restarted from a snapshot may report a lease that has
// been over for a while. A node that has lost its memory and has no data of the key is reported as in quarantine: it
// may have had a lease. Inspect waits until all nodes have answered, but not beyond the node timeout or the end of
// ctx. A quorum of answers is enough.
//
// The error is an [*OpError] matching ErrUnavailable if no quorum of nodes has answered; the state then has the
// answer of each node. A node counts as not answering if this version cannot read its data. The error may also match
// ErrClosed, the context's error and cause, or ErrInvalid. Observers are not called.
func (l *Locker) Inspect(ctx context.Context, key string) (KeyState, error) {
	states, err := l.InspectAll(ctx, key)
	if states == nil {
		return KeyState{}, err
	}
	return states[0], err
}

// maxKeysPerLook is how many keys a node is asked for at a time, so that a request keeps it busy for a short time only.
const maxKeysPerLook = 128

// InspectAll returns the states of several keys, in the order of the keys, as Inspect does for one. It costs less:
// each node is asked for up to 128 keys at once, on a Redis Cluster for those of a bucket. The states may be of
// different moments.
//
// The error names the first key for which no quorum of nodes has answered. If a key is invalid, nothing is asked.
func (l *Locker) InspectAll(ctx context.Context, keys ...string) ([]KeyState, error) {
	for _, key := range keys {
		_, err := l.policyForCall(ctx, key, nil)
		if err != nil {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}

	failure := refusal{err: ErrUnavailable, undecided: true}
	admitted := l.e.gate.Enter()
	if !admitted {
		return nil, failure.stopError(ctx, l.e.Group, OpInspect, keys[0])
	}
	defer l.e.gate.Leave()

	states := l.look(ctx, keys)
	for i := range states {
		state := &states[i]
		readable := state.countNodes(KeyOnNode.isReadable)
		if readable >= quorum.Of(len(state.Nodes)) {
			continue
		}

		for _, n := range state.Nodes {
			failure.nodes = append(failure.nodes, n.NodeReply)
		}
		return states, failure.stopError(ctx, l.e.Group, OpInspect, keys[i])
	}
	return states, nil
}

// look returns the states of keys. It asks for the keys of all buckets at once.
func (l *Locker) look(ctx context.Context, keys []string) []KeyState {
	// The positions of a bucket's keys.
	positions := map[*node.Bucket][]int{}
	for i, key := range keys {
		b := l.e.Bucket(key)
		positions[b] = append(positions[b], i)
	}

	states := make([]KeyState, len(keys))
	var looks sync.WaitGroup
	for b, all := range positions {
		looks.Go(func() {
			for some := range slices.Chunk(all, maxKeysPerLook) {
				lookInto(ctx, l, b, keys, some, states)
			}
		})
	}
	looks.Wait()
	return states
}

// lookInto sets the states of the keys at some positions, which are keys of one bucket.
func lookInto(
	ctx context.Context, l *Locker, b *node.Bucket, keys []string, positions []int, states []KeyState,
) {
	asked := make([]string, len(positions))
	for i, at := range positions {
		asked[i] = keys[at]
	}

	answers := l.askNodes(ctx, b, asked)
	for i, at := range positions {
		nodes := make([]KeyOnNode, len(answers))
		for k := range answers {
			nodes[k] = answers[k].keyState(i)
		}
		states[at] = keyStateOf(nodes)
	}
}

// A lookAnswer is the answer of a node to one request for several keys.
type lookAnswer struct {
	NodeReply
	texts []string // of the keys, in order; nil if the node has not answered
	clock wire.NodeTime
}

// keyState returns the state of the i-th key on the node.
func (a *lookAnswer) keyState(i int) KeyOnNode {
	state := KeyOnNode{NodeReply: a.NodeReply}
	if a.texts != nil {
		state.parse(a.texts[i], a.clock)
	}
	return state
}

// askNodes asks all nodes at once for keys of a bucket, and returns their answers.
func (l *Locker) askNodes(ctx context.Context, b *node.Bucket, keys []string) []lookAnswer {
	e, timeout := l.e, l.p.nodeTimeout
	nodes := make([]lookAnswer, len(e.Nodes))
	answers := make(chan lookAnswer, len(nodes))

	// A client may ignore contexts. Each node is asked on its own goroutine, which can always send its answer.
	for i, n := range e.Nodes {
		nodes[i].NodeReply = NodeReply{Node: i, Addr: n.Addr, Verdict: VerdictPending}
		if ctx.Err() == nil {
			e.Tasks.Go(func() { answers <- l.askNode(ctx, b, n, keys) })
		}
	}

	waitCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for range nodes {
		select {
		case got := <-answers:
			nodes[got.Node] = got
		case <-waitCtx.Done():
		}
	}

	// If ctx has ended, the missing answers stay pending, because their nodes had less than the node timeout.
	if ctx.Err() != nil {
		return nodes
	}
	for i := range nodes {
		n := &nodes[i]

		// A client that respects the deadline may fail before the timer of this function fires.
		failedAtTimeout := n.Verdict == VerdictFailed && n.Latency >= timeout
		if n.Verdict == VerdictPending || failedAtTimeout {
			n.Verdict = VerdictTimedOut
			n.Err = b.NoAnswerError(i)
			n.Latency = timeout
		}
	}
	return nodes
}

// askNode asks one node. It may take longer than the timeout.
func (l *Locker) askNode(ctx context.Context, b *node.Bucket, n *node.Node, keys []string) (got lookAnswer) {
	texts, clock, v := b.Look(ctx, n, keys, l.p.nodeTimeout)
	return lookAnswer{NodeReply: replyOf(n, &v), texts: texts, clock: clock}
}

// parse sets the state of the key from the text that a node stores for it, by the node's clock. The text is empty if
// the node has none.
func (k *KeyOnNode) parse(text string, clock wire.NodeTime) {
	if text == "" {
		return
	}
	s, err := wire.ParseStored(text)
	if err != nil {
		k.Verdict = VerdictFailed
		k.Remaining = 0
		k.Err = err
		return
	}

	now := clock.TruncateToMillis()
	isDone := s.Record != nil && now < s.RecordExpiry
	if isDone {
		k.Verdict = VerdictDone
		k.Remaining = 0
		k.Record = &Record{s.Record.Token, s.Record.Result}
		k.ballot = s.Record.Ballot
	}

	isTaken := s.Owner != "" && now <= s.Expiry
	if !isTaken {
		return
	}
	k.Verdict = VerdictHeld
	k.Remaining = s.Expiry.Since(now) + time.Millisecond
	inCooldown := strings.HasPrefix(s.Owner, wire.CooldownPrefix)
	if inCooldown {
		return
	}
	k.Holder = &Holder{
		Token:     s.Counter,
		Remaining: k.Remaining,
		Note:      s.Holder.Note,
		Name:      s.Holder.Name,
		Hint:      s.Holder.Hint,
		Attempt:   s.Owner,
	}
	if s.Counter != 0 {
		k.Holder.Since = s.Granted()
	}
}

// isReadable reports whether the node has answered, and its answer can be parsed.
func (k KeyOnNode) isReadable() bool {
	readable := []Verdict{VerdictHeld, VerdictDone, VerdictGone, VerdictQuarantined}
	return slices.Contains(readable, k.Verdict)
}

// countNodes returns the number of nodes that match.
func (s KeyState) countNodes(match func(KeyOnNode) bool) (n int) {
	for _, k := range s.Nodes {
		if match(k) {
			n++
		}
	}
	return n
}

// countHolding returns the number of nodes with a lease of the attempt and this token (0 = any).
func (s KeyState) countHolding(attempt string, token uint64) int {
	return s.countNodes(func(k KeyOnNode) bool {
		if k.Holder == nil || k.Holder.Attempt != attempt {
			return false
		}
		return token == 0 || k.Holder.Token == token
	})
}

// keyStateOf returns the state on which a quorum of nodes agrees.
func keyStateOf(nodes []KeyOnNode) KeyState {
	q := quorum.Of(len(nodes))
	s := KeyState{Nodes: nodes}
	var left []time.Duration
	var agreed Holder
	for _, n := range nodes {
		if s.Record == nil && s.isDecided(n, q) {
			s.Record = &Record{n.Record.Token, slices.Clone(n.Record.Result)}
		}

		h := n.Holder
		if h == nil || s.countHolding(h.Attempt, 0) < q {
			continue
		}
		s.Holder = &agreed
		agreed.Attempt = h.Attempt
		left = append(left, h.Remaining)

		// A node may have all metadata of the holder, a part of it, or none.
		agreed.Note = max(agreed.Note, h.Note)
		agreed.Name = max(agreed.Name, h.Name)
		agreed.Hint = max(agreed.Hint, h.Hint)

		// A node's counter can differ from the token. It is smaller until the first renewal if the node granted less
		// than others. It is greater if the node granted the key to others before a renewal brought the lease back.
		// The counter of a quorum is the token.
		if s.countHolding(h.Attempt, h.Token) >= q {
			agreed.Token = h.Token
			agreed.Since = h.Since
		}
	}

	if left != nil {
		slices.Sort(left)
		agreed.Remaining = left[len(left)-q]
	}
	return s
}

// isDecided reports whether a quorum has the completion record of the node, by one ballot.
func (s KeyState) isDecided(n KeyOnNode, q int) bool {
	if n.Record == nil {
		return false
	}
	return s.countNodes(func(k KeyOnNode) bool { return k.ballot == n.ballot }) >= q
}

// Unknown reports whether the key may be held although no quorum of nodes reports a holder. Nodes that do not answer
// or have lost their memory may have had the lease that other nodes have, or may all have had one. Its holder may be
// working.
func (s KeyState) Unknown() bool {
	isSilent := func(k KeyOnNode) bool { return !k.isReadable() || k.Verdict == VerdictQuarantined }
	silent := s.countNodes(func(k KeyOnNode) bool { return k.Holder == nil && isSilent(k) })
	missing := quorum.Of(len(s.Nodes)) - silent
	mayHold := func(k KeyOnNode) bool { return k.Holder != nil && s.countHolding(k.Holder.Attempt, 0) >= missing }
	return s.Holder == nil && (missing <= 0 || slices.ContainsFunc(s.Nodes, mayHold))
}
