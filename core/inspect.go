package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A KeyState is what the nodes say of a key.
type KeyState struct {
	// Holder is who holds the key; nil where no quorum of nodes has a lease of one and the same holder that has not run
	// out. Then the key may be free, kept taken after its release (Cooldown), or part of the nodes may have it
	// for one and part for another who asks for it: Nodes shows which.
	Holder *Holder
	// Record is the completion record; nil where no quorum of nodes has it, by one ballot and within its retention.
	Record *Record
	Nodes  []KeyOnNode // what each node says, in the order given to New
}

// A Holder is who holds a key, as far as the nodes know.
type Holder struct {
	// Token is the fencing token; 0 while the nodes do not agree on it. Of a lease that is just being granted it may be
	// smaller than what the holder is told.
	Token uint64
	// Since is about when the key was granted, as the token tells, which is taken from the holder's wall clock; zero
	// where there is no token. Tokens always grow, so after a clock was set back it is later than that.
	Since time.Time
	// Left is for how long a quorum of nodes keeps the key for the holder if nothing is heard of it any more, as of the answers.
	Left    time.Duration
	By      string // who it is, see WithHolder; empty where it is not known
	Name    string // what for, see Name
	Hint    string // what the holder's Observer.Hint returned; empty where it is not known
	Shown   string // what it passed to Shows
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
// Each node is sent two reads, TIME and GET, and its lease is judged by its own clock; what makes a node's vote unsafe to
// count for a grant is not looked at: a node that was restarted from a snapshot may show a lease that has been over for a
// while. Inspect waits until all nodes have answered, but not beyond the node timeout or the end of ctx, and a quorum of
// answers is enough.
//
// The error is an [*OpError] matching ErrUnavailable (no quorum of nodes has answered; one that stores what this version
// cannot read has not), ErrClosed, or the context's error and cause; or it matches ErrInvalidKey or ErrInvalid. With it,
// the state is zero. Observers hear nothing of Inspect.
func (l *Locker) Inspect(ctx context.Context, key string) (KeyState, error) {
	if _, err := l.asked(ctx, key, nil); err != nil {
		return KeyState{}, err
	}
	state := KeyState{Nodes: make([]KeyOnNode, len(l.e.nodes))}
	for i, n := range l.e.nodes {
		state.Nodes[i].NodeReply = NodeReply{Node: i, Addr: n.addr, Verdict: VerdictPending}
	}
	if ctx.Err() == nil && l.e.begin(true) {
		defer l.e.end()
		l.look(ctx, key, state.Nodes)
	}
	return state.settled(ctx, l.e, key)
}

// look asks all nodes.
func (l *Locker) look(ctx context.Context, key string, nodes []KeyOnNode) {
	e, timeout := l.e, l.p.nodeTimeout
	answers := make(chan KeyOnNode, len(nodes))
	for _, n := range e.nodes {
		e.spawn(func() { answers <- e.lookAt(ctx, n, key, timeout) })
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for range nodes {
		select {
		case got := <-answers:
			nodes[got.Node] = got
		case <-ctx.Done():
			return
		case <-timer.C:
			for i, n := range e.nodes {
				if nodes[i].Verdict == VerdictPending {
					nodes[i].Verdict, nodes[i].Err, nodes[i].Latency = VerdictTimedOut, n.noAnswer(e.keys.bucket(key)), timeout
				}
			}
			return
		}
	}
}

// lookAt asks a node. It may take longer than the timeout.
func (e *ensemble) lookAt(ctx context.Context, n *node, key string, timeout time.Duration) KeyOnNode {
	got := KeyOnNode{NodeReply: NodeReply{Node: n.index, Addr: n.addr}}
	sent := e.clock.now()
	b, err := n.admit(sent, timeout, false, true, e.keys.bucket(key))
	if err != nil {
		got.Verdict, got.Err = VerdictCircuitOpen, err
		return got
	}
	clock, text, err := n.read(&nodeContext{ctx, time.Now().Add(timeout)}, e.keys.resource(key))
	now := e.clock.now()
	n.leave(b, now, err)
	if answered(err) {
		e.answered.Store(int64(now))
	}
	got.Latency = now - sent
	var s stored
	if err == nil {
		s, err = parseStored(text)
	}
	if err != nil && !errors.Is(err, redis.Nil) { // which says that nothing is stored
		got.Verdict, got.Err = VerdictFailed, err
		return got
	}
	got.Skew = time.Until(clock)
	got.judge(s, clock)
	return got
}

// read reads the clock, and a Redis key. In a Cluster that is the clock of the server that has the key.
func (n *node) read(ctx context.Context, key string) (clock time.Time, text string, err error) {
	client := n.client
	if n.cluster != nil {
		if client, err = n.cluster.MasterForKey(ctx, key); err != nil {
			return clock, "", err
		}
	}
	at, get := redis.NewTimeCmd(ctx, "time"), redis.NewStringCmd(ctx, "get", key)
	_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		return errors.Join(p.Process(ctx, at), p.Process(ctx, once{get}))
	})
	return at.Val(), get.Val(), err
}

// judge says what is stored amounts to at a time of the node's clock.
func (k *KeyOnNode) judge(s stored, clock time.Time) {
	now := clock.UnixMilli()
	k.Verdict = VerdictGone
	if s.record != nil && now < s.kept {
		k.Verdict, k.Record, k.ballot = VerdictDone, &s.record.Record, s.record.ballot
	}
	if s.owner != "" && now <= s.expiry {
		k.Verdict, k.Rest = VerdictHeld, time.Duration(s.expiry+1-now)*time.Millisecond
		if !strings.HasPrefix(s.owner, keptTaken) {
			k.Holder = &Holder{Token: s.counter, Left: k.Rest, Attempt: s.owner}
			c := carried(s.carried)
			k.Holder.By, k.Holder.Name, k.Holder.Hint, k.Holder.Shown = c.by, c.name, c.hint, c.shown
			k.Holder.date()
		}
	}
}

// date reads Since from the token.
func (h *Holder) date() {
	if h.Token != 0 {
		h.Since = time.UnixMicro(int64(h.Token))
	}
}

// settled is what a quorum of nodes agrees on.
func (s KeyState) settled(ctx context.Context, e *engine, key string) (KeyState, error) {
	q, heard, pending := quorum(len(s.Nodes)), 0, 0
	var attempts []string
	var ballots []uint64
	for _, n := range s.Nodes {
		switch n.Verdict {
		case VerdictPending:
			pending++
		case VerdictHeld, VerdictDone, VerdictGone:
			heard++
		default: // it has not told
		}
		if n.Holder != nil {
			attempts = append(attempts, n.Holder.Attempt)
		}
		if n.Record != nil {
			ballots = append(ballots, n.ballot)
		}
	}
	if heard < q {
		return KeyState{}, s.unsettled(ctx, e, key, heard+pending >= q)
	}
	if attempt := agreed(q, attempts); attempt != "" {
		s.Holder = s.holder(q, attempt)
	}
	if ballot := agreed(q, ballots); ballot != 0 {
		i := slices.IndexFunc(s.Nodes, func(n KeyOnNode) bool { return n.Record != nil && n.ballot == ballot })
		s.Record = (&nodeRecord{Record: *s.Nodes[i].Record}).clone()
	}
	return s, nil
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
			all.By, all.Name, all.Hint, all.Shown = max(all.By, h.By), max(all.Name, h.Name), max(all.Hint, h.Hint), max(all.Shown, h.Shown)
		}
	}
	slices.Sort(left)
	// A node's counter is behind the token until the first renewal, where it granted less than others, and ahead where
	// it granted the key to others before the lease was brought back.  On a quorum it is neither.
	all.Token, all.Left = agreed(q, tokens), left[len(left)-q]
	all.date()
	return &all
}

// unsettled is the error where no quorum has answered. open: those that are still asked might make one.
func (s KeyState) unsettled(ctx context.Context, e *engine, key string, open bool) error {
	replies := make([]NodeReply, len(s.Nodes))
	for i, n := range s.Nodes {
		replies[i] = n.NodeReply
	}
	a := acquisition{call: call{e: e, key: key}, last: result{err: ErrUnavailable, open: open, nodes: replies}}
	err := a.stopped(ctx)
	if op, ok := errors.AsType[*OpError](err); ok {
		op.Op = OpInspect
	}
	return err
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
