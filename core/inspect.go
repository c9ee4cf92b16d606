package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
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

// A Holder is who holds a key, as far as the nodes know.
type Holder struct {
	// Token is the fencing token; 0 = not known, because the nodes do not agree on it: those that others have passed, or
	// that have granted less, have another. Of a lease that is just being granted it may be smaller than what the holder is told.
	Token uint64
	// Since is about when the key was granted, as the token tells, which is taken from the holder's wall clock; zero
	// where there is no token. Tokens always grow, so after a clock was set back it is later than that.
	Since time.Time
	// Left is for how long a quorum of nodes keeps the key for the holder if nothing is heard of it any more, as of the answers.
	Left    time.Duration
	Note    string // who it is, see the option Note; empty where it is not known
	Name    string // what for, see Name
	Hint    string // what the holder's Observer.Hint returned; empty where it is not known
	Attempt string // the nodes' name for the lease
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
	if _, err := l.asked(ctx, key, nil); err != nil {
		return KeyState{}, err
	}
	if !l.e.gate.Enter() {
		return KeyState{}, &OpError{Op: OpInspect, Key: key, Err: ErrClosed}
	}
	defer l.e.gate.Leave()
	nodes, heard := l.look(ctx, key), 0
	for _, n := range nodes {
		if n.told() {
			heard++
		}
	}
	state := settle(nodes)
	switch err := endOf(ctx); {
	case heard >= quorum(len(nodes)):
		return state, nil
	case err != nil:
		return KeyState{}, &OpError{Op: OpInspect, Key: key, Err: err, Nodes: state.replies()}
	}
	state.Holder, state.Record = nil, nil
	return state, &OpError{Op: OpInspect, Key: key, Err: ErrUnavailable, Nodes: state.replies()}
}

// look asks all nodes.
func (l *Locker) look(ctx context.Context, key string) []KeyOnNode {
	e, timeout := l.e, l.p.nodeTimeout
	nodes := make([]KeyOnNode, len(e.nodes))
	answers := make(chan KeyOnNode, len(nodes))
	for i, n := range e.nodes {
		nodes[i].NodeReply = NodeReply{Node: i, Addr: n.addr, Verdict: VerdictPending}
		if ctx.Err() == nil {
			e.spawn(func() { answers <- l.lookAt(ctx, n, key) })
		}
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for range nodes {
		select {
		case got := <-answers:
			nodes[got.Node] = got
		case <-ctx.Done():
			return nodes
		case <-timer.C:
			for i, n := range e.nodes {
				if nodes[i].Verdict == VerdictPending {
					nodes[i].Verdict, nodes[i].Err, nodes[i].Latency = VerdictTimedOut, n.noAnswer(e.keys.Bucket(key)), timeout
				}
			}
			return nodes
		}
	}
	return nodes
}

// lookAt asks a node. It may take longer than the timeout.
func (l *Locker) lookAt(ctx context.Context, n *node, key string) (got KeyOnNode) {
	e := l.e
	got.Node, got.Addr = n.index, n.addr
	bucket, sent := e.keys.Bucket(key), e.clock.now()
	b, err := n.admit(sent, l.p.nodeTimeout, false, true, bucket)
	if err != nil {
		got.Verdict, got.Err = VerdictCircuitOpen, err
		return got
	}
	clock, text, guard, err := l.read(&nodeContext{ctx, time.Now().Add(l.p.nodeTimeout)}, n, key)
	now := e.clock.now()
	n.leave(b, now, err)
	if answered(err) {
		e.answered.store(now)
	}
	if err != nil {
		got.Verdict, got.Err, got.Latency = VerdictFailed, err, now.since(sent)
		return got
	}
	got.read(text, clock)
	got.Latency, got.Skew = now.since(sent), clock.skew(time.Now())
	if got.Verdict == VerdictGone && guard.state > guardVoting {
		got.Verdict, got.Rest = VerdictQuarantined, guard.left
	}
	return got
}

// read reads the clock, what is stored for a key, and what the guard knows. In a Cluster they are those of the server that has the key.
func (l *Locker) read(ctx context.Context, n *node, key string) (clock nodeTime, text string, guard guardFacts, err error) {
	client, resource := n.client, l.e.keys.Resource(key)
	if n.cluster != nil {
		if client, err = n.cluster.MasterForKey(ctx, resource); err != nil {
			return clock, "", guard, err
		}
	}
	cmds := []redis.Cmder{redis.NewTimeCmd(ctx, "time"), redis.NewStringCmd(ctx, "get", resource)}
	if l.p.guarded {
		cmds = append(cmds, askGuard(ctx, l.e.keys.Guard(l.e.keys.Bucket(key))), redis.NewStringCmd(ctx, "info", "replication"))
	}
	var guarding sync.WaitGroup
	if len(cmds) > 2 { // at the same time, so that a slow server is no slower for it
		guarding.Go(func() { pipelined(ctx, client, cmds[2:]) })
	}
	pipelined(ctx, client, cmds[:2])
	guarding.Wait()
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) { // which says that nothing is stored
			return clock, "", guard, err
		}
	}
	clock, text = nodeTimeOf(cmds[0].(*redis.TimeCmd).Val()), cmds[1].(*redis.StringCmd).Val()
	if text == "" && cmds[1].Err() == nil {
		text = "\x00" // an empty text is as foreign as this
	}
	if l.p.guarded {
		guard = l.p.readGuard(cmds[2].(*redis.SliceCmd).Val(), parseInfo(cmds[3].(*redis.StringCmd).Val())["master_replid"], clock)
	}
	return clock, text, guard, nil
}

// read says what text, which is stored for the key if it is not empty, amounts to at a time of the node's clock.
func (k *KeyOnNode) read(text string, clock nodeTime) {
	var s stored
	if text != "" {
		var err error
		if s, err = parseStored(text); err != nil {
			k.Verdict, k.Err = VerdictFailed, err
			return
		}
	}
	k.judge(s, clock)
}

// told reports whether the node has answered, and can be read.
func (k *KeyOnNode) told() bool {
	switch k.Verdict {
	case VerdictHeld, VerdictDone, VerdictGone, VerdictQuarantined:
		return true
	default:
		return false
	}
}

// judge says what is stored amounts to at a time of the node's clock.
func (k *KeyOnNode) judge(s stored, clock nodeTime) {
	now := nodeMillis(clock.millis()) // as scripts count
	k.Verdict = VerdictGone
	if s.record != nil && now < s.kept {
		k.Verdict, k.Record, k.ballot = VerdictDone, &s.record.Record, s.record.ballot
	}
	if s.owner != "" && now <= s.expiry {
		k.Verdict, k.Rest = VerdictHeld, s.expiry.since(now)+time.Millisecond
		if !strings.HasPrefix(s.owner, keptTaken) {
			k.Holder = &Holder{Token: s.counter, Left: k.Rest, Attempt: s.owner}
			c := carried(s.carried)
			k.Holder.Note, k.Holder.Name, k.Holder.Hint = c.note, c.name, c.hint
			k.Holder.date()
		}
	}
}

// date reads Since from the token.
func (h *Holder) date() {
	if h.Token != 0 {
		h.Since = date(h.Token)
	}
}

// settle is what a quorum of nodes agrees on.
func settle(nodes []KeyOnNode) KeyState {
	s, q := KeyState{Nodes: nodes}, quorum(len(nodes))
	var attempts []string
	var ballots []uint64
	for _, n := range nodes {
		if n.Holder != nil {
			attempts = append(attempts, n.Holder.Attempt)
		}
		if n.Record != nil {
			ballots = append(ballots, n.ballot)
		}
	}
	if attempt := agreed(q, attempts); attempt != "" {
		s.Holder = s.holder(q, attempt)
	}
	if ballot := agreed(q, ballots); ballot != 0 {
		i := slices.IndexFunc(nodes, func(n KeyOnNode) bool { return n.Record != nil && n.ballot == ballot })
		s.Record = (&nodeRecord{Record: *nodes[i].Record}).clone()
	}
	return s
}

// Unknown reports whether somebody may hold the key of whom no quorum of nodes tells: nodes that are silent, or have lost
// their memory, may have had the lease that others have, or may all have had one. Its holder may be at work.
func (s KeyState) Unknown() bool {
	untold, leases, most := 0, map[string]int{}, 0
	for _, n := range s.Nodes {
		switch {
		case n.Holder != nil:
			leases[n.Holder.Attempt]++
			most = max(most, leases[n.Holder.Attempt])
		case !n.told() || n.Verdict == VerdictQuarantined:
			untold++
		}
	}
	return s.Holder == nil && most+untold >= quorum(len(s.Nodes))
}

// holder joins what nodes know of an attempt that a quorum of them has.
func (s KeyState) holder(q int, attempt string) *Holder {
	all := Holder{Attempt: attempt}
	var tokens []uint64
	var left []time.Duration
	for _, n := range s.Nodes {
		if h := n.Holder; h != nil && h.Attempt == attempt {
			tokens, left = append(tokens, h.Token), append(left, h.Left)
			// A node has what the holder carries, or part of it, or nothing.
			all.Note, all.Name, all.Hint = max(all.Note, h.Note), max(all.Name, h.Name), max(all.Hint, h.Hint)
		}
	}
	slices.Sort(left)
	// A node's counter is behind the token until the first renewal, where it granted less than others, and ahead where
	// it granted the key to others before the lease was brought back.  On a quorum it is neither.
	all.Token, all.Left = agreed(q, tokens), left[len(left)-q]
	all.date()
	return &all
}

// agreed is what a quorum says; zero if there is no such thing.
func agreed[T comparable](q int, said []T) (what T) {
	for _, a := range said {
		same := 0
		for _, b := range said {
			if a == b {
				same++
			}
		}
		if same >= q {
			return a
		}
	}
	return what
}
