package core

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A KeyState is what the nodes say of a key.
type KeyState struct {
	// Holder is who holds the key; nil where no quorum of nodes has a lease of one and the same holder that has not run
	// out. Then the key may be free, kept taken after its release (Cooldown), held all the same, see Unknown, or part of the nodes may have it
	// for one and part for another who asks for it: Nodes shows which.
	Holder *Holder
	// Record is the completion record; nil where no quorum of nodes has it, by one ballot and within its retention.
	Record *Record
	Nodes  []KeyOnNode // what each node says, in the order given to New
}

// A Holder is who holds a key, as far as the nodes know. Nodes that others have passed, or that have granted less, have another
// token than the rest; of a lease that is just being granted it may be smaller than what the holder is told. Since is what the
// token tells, which is taken from the holder's wall clock and always grows: after that was set back, it is too late.
type Holder struct {
	Token   uint64        // the fencing token; 0 = not known, because the nodes do not agree on it
	Since   time.Time     // about when the key was granted; zero where there is no token
	Left    time.Duration // for how long a quorum of nodes keeps the key if nothing is heard of the holder any more, as of the answers
	Note    string        // who it is, see the option Note; empty where it is not known
	Name    string        // what for, see Name
	Hint    string        // what the holder's Observer.Hint returned; empty where it is not known
	Attempt string        // the nodes' name for the lease
}

// A KeyOnNode is what one node says of a key.
type KeyOnNode struct {
	NodeReply         // VerdictHeld, VerdictDone, VerdictGone for neither, or why the node has not answered
	Holder    *Holder // of the lease on this node that has not run out, granted by a quorum or not; nil = none
	Record    *Record // the completion record on this node, decided or not, within its retention; nil = none

	ballot uint64 // of the record
}

// Inspect returns what the nodes say of key: who holds it, and whether it is recorded as completed. It changes nothing,
// neither on the nodes nor for anybody who holds the key or waits for it, so it may be called at any rate that the nodes
// stand. It is for people, pages and probes, and excludes nobody: what it returns may be over by the time it returns, so
// who is to act on a key must acquire it.
//
// Each node is sent reads only (TIME and GET; with the restart guard its record and INFO replication, too), and its lease
// is judged by its own clock: a node that was restarted from a snapshot may show a lease that has been over for a while. One
// that has lost its memory, and has nothing of the key, is shown as in quarantine: it may have had a lease. Inspect waits until all nodes
// have answered, but not beyond the node timeout or the end of ctx, and a quorum of answers is enough.
//
// The error is an [*OpError] matching ErrUnavailable (no quorum of nodes has answered; one that stores what this version
// cannot read has not), with what each node said in the state; ErrClosed, or the context's error and cause; or it matches
// ErrInvalid. Observers hear nothing of Inspect.
func (l *Locker) Inspect(ctx context.Context, key string) (KeyState, error) {
	if _, err := l.policyForCall(ctx, key, nil); err != nil {
		return KeyState{}, err
	}
	known := refusal{err: ErrUnavailable, undecided: true}
	if !l.e.gate.Enter() {
		return KeyState{}, known.stopError(ctx, l.e.Group, OpInspect, key)
	}
	defer l.e.gate.Leave()
	state := keyStateOf(l.askNodes(ctx, key))
	if state.countNodes(KeyOnNode.isReadable) >= quorum.Of(len(state.Nodes)) {
		return state, nil
	}
	for _, n := range state.Nodes {
		known.nodes = append(known.nodes, n.NodeReply)
	}
	return state, known.stopError(ctx, l.e.Group, OpInspect, key)
}

// look asks all nodes.
func (l *Locker) askNodes(ctx context.Context, key string) []KeyOnNode {
	e, timeout := l.e, l.p.nodeTimeout
	nodes := make([]KeyOnNode, len(e.Nodes))
	answers := make(chan KeyOnNode, len(nodes))
	for i, n := range e.Nodes {
		nodes[i].NodeReply = NodeReply{Node: i, Addr: n.Addr, Verdict: VerdictPending}
		if ctx.Err() == nil {
			e.Tasks.Go(func() { answers <- l.askNode(ctx, n, key) })
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
	for i, n := range nodes { // a client that heeds the deadline may be the first to say so
		if ctx.Err() == nil && (n.Verdict == VerdictPending || n.Verdict == VerdictFailed && n.Latency >= timeout) {
			nodes[i].Verdict, nodes[i].Err, nodes[i].Latency = VerdictTimedOut, e.Bucket(key).NoAnswer(i), timeout
		}
	}
	return nodes
}

// lookAt asks a node. It may take longer than the timeout.
func (l *Locker) askNode(ctx context.Context, n *node.Node, key string) (got KeyOnNode) {
	text, clock, v := l.e.Bucket(key).Look(ctx, n, key, l.p.nodeTimeout)
	got.NodeReply = replyOf(n, &v)
	got.parse(text, clock)
	return got
}

// read says what text, which is stored for the key if it is not empty, amounts to at a time of the node's clock.
func (k *KeyOnNode) parse(text string, clock wire.NodeTime) {
	if text == "" {
		return
	}
	s, err := wire.ParseStored(text)
	if err != nil {
		k.Verdict, k.Rest, k.Err = VerdictFailed, 0, err
		return
	}
	now := clock.Whole()
	if s.Record != nil && now < s.Kept {
		k.Verdict, k.Rest = VerdictDone, 0
		k.Record, k.ballot = &Record{s.Record.Token, s.Record.Result}, s.Record.Ballot
	}
	if s.Owner != "" && now <= s.Expiry {
		k.Verdict, k.Rest = VerdictHeld, s.Expiry.Since(now)+time.Millisecond
		if !strings.HasPrefix(s.Owner, wire.KeptTaken) {
			k.Holder = &Holder{Token: s.Counter, Left: k.Rest, Note: s.Holder.Note, Name: s.Holder.Name, Hint: s.Holder.Hint, Attempt: s.Owner}
			if s.Counter != 0 {
				k.Holder.Since = s.Granted()
			}
		}
	}
}

// told reports whether the node has answered, and can be read.
func (k KeyOnNode) isReadable() bool {
	return slices.Contains([]Verdict{VerdictHeld, VerdictDone, VerdictGone, VerdictQuarantined}, k.Verdict)
}

// count is how many nodes say so.
func (s KeyState) countNodes(so func(KeyOnNode) bool) (n int) {
	for _, k := range s.Nodes {
		if so(k) {
			n++
		}
	}
	return n
}

// having is how many nodes have a lease of an attempt under a token (0 = any).
func (s KeyState) countHolding(attempt string, token uint64) int {
	return s.countNodes(func(k KeyOnNode) bool {
		return k.Holder != nil && k.Holder.Attempt == attempt && (token == 0 || k.Holder.Token == token)
	})
}

// settle is what a quorum of nodes agrees on.
func keyStateOf(nodes []KeyOnNode) KeyState {
	s, q := KeyState{Nodes: nodes}, quorum.Of(len(nodes))
	var left []time.Duration
	var all Holder
	for _, n := range nodes {
		if h := n.Holder; h != nil && s.countHolding(h.Attempt, 0) >= q {
			s.Holder, all.Attempt, left = &all, h.Attempt, append(left, h.Left)
			// A node has what the holder carries, or part of it, or nothing.
			all.Note, all.Name, all.Hint = max(all.Note, h.Note), max(all.Name, h.Name), max(all.Hint, h.Hint)
			// Its counter is behind the token until the first renewal, where it granted less than others, and ahead where
			// it granted the key to others before the lease was brought back. On a quorum it is neither.
			if s.countHolding(h.Attempt, h.Token) >= q {
				all.Token, all.Since = h.Token, h.Since
			}
		}
		if n.Record != nil && s.Record == nil && s.countNodes(func(k KeyOnNode) bool { return k.ballot == n.ballot }) >= q {
			s.Record = &Record{n.Record.Token, slices.Clone(n.Record.Result)}
		}
	}
	if slices.Sort(left); left != nil {
		all.Left = left[len(left)-q]
	}
	return s
}

// Unknown reports whether somebody may hold the key of whom no quorum of nodes tells: nodes that are silent, or have lost
// their memory, may have had the lease that others have, or may all have had one. Its holder may be at work.
func (s KeyState) Unknown() bool {
	untold := s.countNodes(func(k KeyOnNode) bool { return k.Holder == nil && (!k.isReadable() || k.Verdict == VerdictQuarantined) })
	missing := quorum.Of(len(s.Nodes)) - untold
	mayHold := func(k KeyOnNode) bool { return k.Holder != nil && s.countHolding(k.Holder.Attempt, 0) >= missing }
	return s.Holder == nil && (missing <= 0 || slices.ContainsFunc(s.Nodes, mayHold))
}

// Ready reports whether a lock could be had: nil means that just now a quorum of nodes would have granted a key that
// nobody holds. It is for health endpoints and dashboards, and cheap enough for them: one request to each node, which
// changes nothing but that a node that lost its memory begins its quarantine, as it does with any request. It returns when
// a quorum agrees, or cannot any more, and waits for no more than the node timeout.
//
// Beware of making it a readiness probe. Where the nodes are in trouble, no replica of a service is ready, all of them are
// taken out at once, and what needs no lock is down as well; and a replica that is not ready is none the better for it. Let
// it decide whether a replica gets work that cannot be done without a lock, and nothing else; and never make it a liveness
// probe: restarts mend no node.
//
// The error is an [*OpError] without a key. It matches ErrUnavailable, with what each node said (RetryAfter is when a quorum
// votes again, where that is known); ErrClosed, once Close was called; or the context's error and cause. Nil is no promise:
// the next acquisition may find otherwise. Of a Redis Cluster each call asks one shard, which it picks at random.
func (l *Locker) Ready(ctx context.Context) error {
	if err := l.checkCall(ctx); err != nil {
		return err
	}
	var known refusal
	if ctx.Err() != nil || !l.e.gate.Enter() {
		return known.stopError(ctx, l.e.Group, OpReady, "")
	}
	defer l.e.gate.Leave()
	r := l.e.Buckets[l.e.jitter(int64(len(l.e.Buckets)))].Touching()
	r.Decided = func(r *node.Round) bool {
		granted := r.Count(wire.Granted)
		return granted >= r.Q || granted+r.Pending < r.Q
	}
	r.Send(ctx, quorum.All(len(l.e.Nodes)))
	r.Wait(ctx)
	t := &r.Tally
	_, _, same := t.SameServer()
	if t.Count(wire.Granted) >= t.Q && !same {
		return nil
	}
	known = refusalOf(l.e.Group, t)
	known.at = l.e.Clock.Now()
	return known.stopError(ctx, l.e.Group, OpReady, "")
}
