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
	_, err := l.policyForCall(ctx, key, nil)
	if err != nil {
		return KeyState{}, err
	}

	failure := refusal{err: ErrUnavailable, undecided: true}
	admitted := l.e.gate.Enter()
	if !admitted {
		return KeyState{}, failure.stopError(ctx, l.e.Group, OpInspect, key)
	}
	defer l.e.gate.Leave()

	state := keyStateOf(l.askNodes(ctx, key))
	readable := state.countNodes(KeyOnNode.isReadable)
	if readable >= quorum.Of(len(state.Nodes)) {
		return state, nil
	}

	for _, n := range state.Nodes {
		failure.nodes = append(failure.nodes, n.NodeReply)
	}
	return state, failure.stopError(ctx, l.e.Group, OpInspect, key)
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

	if ctx.Err() != nil {
		return nodes
	}
	for i := range nodes {
		n := &nodes[i]

		// A client that respects the deadline may fail before the timer of this function fires.
		failedAtTimeout := n.Verdict == VerdictFailed && n.Latency >= timeout
		if n.Verdict == VerdictPending || failedAtTimeout {
			n.Verdict = VerdictTimedOut
			n.Err = e.Bucket(key).NoAnswer(i)
			n.Latency = timeout
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
		k.Verdict = VerdictFailed
		k.Rest = 0
		k.Err = err
		return
	}

	now := clock.Whole()
	isDone := s.Record != nil && now < s.Kept
	if isDone {
		k.Verdict = VerdictDone
		k.Rest = 0
		k.Record = &Record{s.Record.Token, s.Record.Result}
		k.ballot = s.Record.Ballot
	}

	isTaken := s.Owner != "" && now <= s.Expiry
	if !isTaken {
		return
	}
	k.Verdict = VerdictHeld
	k.Rest = s.Expiry.Since(now) + time.Millisecond
	inCooldown := strings.HasPrefix(s.Owner, wire.KeptTaken)
	if inCooldown {
		return
	}
	k.Holder = &Holder{
		Token:   s.Counter,
		Left:    k.Rest,
		Note:    s.Holder.Note,
		Name:    s.Holder.Name,
		Hint:    s.Holder.Hint,
		Attempt: s.Owner,
	}
	if s.Counter != 0 {
		k.Holder.Since = s.Granted()
	}
}

// told reports whether the node has answered, and can be read.
func (k KeyOnNode) isReadable() bool {
	readable := []Verdict{VerdictHeld, VerdictDone, VerdictGone, VerdictQuarantined}
	return slices.Contains(readable, k.Verdict)
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
		if k.Holder == nil || k.Holder.Attempt != attempt {
			return false
		}
		return token == 0 || k.Holder.Token == token
	})
}

// settle is what a quorum of nodes agrees on.
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
		left = append(left, h.Left)

		// A node may have all metadata of the holder, a part of it, or none.
		agreed.Note = max(agreed.Note, h.Note)
		agreed.Name = max(agreed.Name, h.Name)
		agreed.Hint = max(agreed.Hint, h.Hint)

		// A node's counter can differ from the token. It is smaller until the first renewal if the node granted less than
		// others. It is greater if the node granted the key to others before a renewal brought the lease back. The counter
		// of a quorum is the token.
		if s.countHolding(h.Attempt, h.Token) >= q {
			agreed.Token = h.Token
			agreed.Since = h.Since
		}
	}

	if left != nil {
		slices.Sort(left)
		agreed.Left = left[len(left)-q]
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

// Unknown reports whether somebody may hold the key of whom no quorum of nodes tells: nodes that are silent, or have lost
// their memory, may have had the lease that others have, or may all have had one. Its holder may be at work.
func (s KeyState) Unknown() bool {
	isSilent := func(k KeyOnNode) bool { return !k.isReadable() || k.Verdict == VerdictQuarantined }
	silent := s.countNodes(func(k KeyOnNode) bool { return k.Holder == nil && isSilent(k) })
	missing := quorum.Of(len(s.Nodes)) - silent
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
	err := l.checkCall(ctx)
	if err != nil {
		return err
	}

	var failure refusal
	if ctx.Err() != nil {
		return failure.stopError(ctx, l.e.Group, OpReady, "")
	}
	admitted := l.e.gate.Enter()
	if !admitted {
		return failure.stopError(ctx, l.e.Group, OpReady, "")
	}
	defer l.e.gate.Leave()

	shard := l.e.jitter(int64(len(l.e.Buckets)))
	r := l.e.Buckets[shard].Touching()
	r.Decided = func(r *node.Round) bool {
		granted := r.Count(wire.Granted)
		return granted >= r.Q || granted+r.Pending < r.Q
	}
	r.Send(ctx, quorum.All(len(l.e.Nodes)))
	r.Wait(ctx)

	t := &r.Tally
	_, _, same := t.SameServer()
	isReady := t.Count(wire.Granted) >= t.Q && !same
	if isReady {
		return nil
	}
	failure = refusalOf(l.e.Group, t)
	failure.at = l.e.Clock.Now()
	return failure.stopError(ctx, l.e.Group, OpReady, "")
}
