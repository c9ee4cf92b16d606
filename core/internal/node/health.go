package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// How nodes are looked after when nobody asks them. A node begins its quarantine when it is asked for the first
// time after it lost its memory, so one that has not been asked for a while is touched: however quiet the
// process is, the next lock need not wait for nodes that were restarted long ago. Servers that were unfit, or
// could not be examined, are examined again.
//
// It is a timer: while nothing is due it takes no goroutine.

// RecheckEvery is how long a server that was found unfit, or could not be examined, is left alone.
const RecheckEvery = 10 * time.Second

// TouchEvery is how long nodes may go without being asked. A node that restarts votes again after at most
// this and the max TTL: half a max TTL keeps that near the least there can be, within bounds that make the
// requests few and the wait short. A Redis Cluster is spared more than four per second for its many guard
// records.
func (g *Group) TouchEvery() time.Duration {
	every := min(max(g.Conf.MaxTTL/2, 5*time.Second), 30*time.Second)
	return max(every, time.Duration(len(g.Buckets))*250*time.Millisecond)
}

// LookAfter has the nodes looked after until BeginClose. The guard records of a Cluster get their turns evenly.
func (g *Group) LookAfter() {
	now, every := g.Clock.Now(), g.TouchEvery()
	for i, b := range g.Buckets {
		b.asked.Store(now.Add(every * time.Duration(i) / time.Duration(len(g.Buckets))))
	}
	g.mu.Lock()
	g.due = time.AfterFunc(time.Hour, func() { g.Tasks.Go(g.look) })
	g.mu.Unlock()
	g.plan()
	if g.touches() && len(g.Buckets) == 1 { // those of a Cluster are touched in turn
		g.Tasks.Go(g.Buckets[0].beginQuarantines)
	}
}

// plan sets the timer for what is due next, which may be never. It is called again when something new may have become due.
func (g *Group) plan() {
	_, next := g.idlest()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.Nodes {
		n.mu.Lock()
		next = min(next, n.checkAt)
		n.mu.Unlock()
	}
	if g.due != nil {
		g.due.Reset(max(next.Since(g.Clock.Now()), g.TouchEvery()/time.Duration(2*len(g.Buckets))))
	}
}

// touches reports whether nodes are touched when nobody asks them.
func (g *Group) touches() bool { return g.Conf.Guarded && !g.Conf.Looking }

// idlest is the bucket that nodes have not been asked about for longest, and when they are to be touched.
func (g *Group) idlest() (idlest *Bucket, due clock.Instant) {
	oldest := clock.Never
	for _, b := range g.Buckets {
		if at := b.asked.Load(); g.touches() && at < oldest {
			idlest, oldest = b, at
		}
	}
	return idlest, oldest.Add(g.TouchEvery())
}

// look does what is due. Of the guard records of a Cluster, it takes one at a time.
func (g *Group) look() {
	now := g.Clock.Now()
	for _, n := range g.Nodes {
		n.mu.Lock()
		due := n.checkAt <= now
		if due {
			n.checkAt = clock.Never
		}
		n.mu.Unlock()
		if due {
			g.Tasks.Go(func() { g.check(n) })
		}
	}
	if b, due := g.idlest(); due <= now {
		b.asked.Store(now)
		b.Touch(quorum.All(len(g.Nodes)))
	}
	g.plan()
}

// Touch asks nodes for nothing, so that those that lost their memory notice it, and those that take no writes are told of.
func (b *Bucket) Touch(nodes quorum.Set) {
	r := b.Touching()
	r.Send(context.Background(), nodes) //nolint:forbidigo // nobody waits for it; bounded by the node timeout
	r.Leave()                           // what they say is heard late
}

// Touching is a round that asks nodes whether they would grant a key of the bucket.
func (b *Bucket) Touching() *Round {
	r := &Round{Request: b.Keys.Touch(b.index)}
	r.Init(b, wire.OpTouch, b.Conf.Timeout, nil, nil)
	return r
}

// Claim asks all nodes what they remember: those that have never granted anything keep the claim until they do, or
// forget it. Given what all of them said, it declares those to be new that still have the claim. It reports false where ctx ended
// first.
func (b *Bucket) Claim(ctx context.Context, found []quorum.Vote) ([]quorum.Vote, bool) {
	claim := rand.Text()
	var r Round
	r.Init(b, wire.OpProvision, b.Conf.Timeout, nil, nil)
	r.Must, r.Each = true, func(i int) wire.Request {
		was := wire.NoMemory
		if found != nil {
			was = found[i].Claim
		}
		return b.Keys.Provision(b.index, claim, was)
	}
	r.Send(ctx, quorum.All(len(b.Nodes)))
	ok := r.Wait(ctx)
	return r.Votes, ok
}

// beginQuarantines makes nodes notice that they have lost their memory before anybody asks for a key. Those that are new stay so
// for Provision.
func (b *Bucket) beginQuarantines() {
	said, ok := b.Claim(context.Background(), nil) //nolint:forbidigo // nobody waits for it; bounded by the node timeout
	t := quorum.Tally{Votes: said}
	lost := t.Where(func(v *quorum.Vote) bool { return v.Verdict == wire.Quarantined && v.Claim == "" })
	if ok && lost != 0 {
		b.Touch(lost)
	}
}

// ErrSameServer is why a server has no second vote.
var ErrSameServer = errors.New("the same server is listed twice")

// Check examines all nodes at once, and names those that are unfit. Nodes that do not answer within the
// node timeout are examined later.
func (g *Group) Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), g.Conf.Timeout) //nolint:forbidigo // New has no context
	defer cancel()
	checked := make(chan struct{}, len(g.Nodes))
	for _, n := range g.Nodes {
		g.Tasks.Go(func() {
			g.check(n)
			checked <- struct{}{}
		})
	}
	for range g.Nodes {
		select {
		case <-checked:
		case <-ctx.Done():
		}
	}
	var faults []error
	for _, n := range g.Nodes {
		n.mu.Lock()
		fault, unsure := n.fault, n.unsure
		n.mu.Unlock()
		switch {
		case fault != nil:
			faults = append(faults, fmt.Errorf("%v: %w", n, fault))
		case unsure != nil:
			g.Conf.Logger.Warn("lockkit: node cannot be checked, starting without it", n.attrs(), "err", unsure)
		}
	}
	return errors.Join(faults...)
}

// check examines a server. One that could not be examined stays what it was.
func (g *Group) check(n *Node) {
	n.mu.Lock()
	again := n.fault != nil || goredis.TroubleOf(n.unsure).Elsewhere
	n.mu.Unlock()
	if again { // its name may lead to another server by now than to the one that was unfit
		g.Buckets[0].reconnect(n)
	}
	runID, fault, err := g.examine(n)
	if lasts := goredis.Lasting(err); lasts != nil {
		fault, err = lasts, nil
	}
	g.mu.Lock()
	if err == nil && fault == nil {
		fault = g.twin(n, runID)
	}
	n.mu.Lock()
	was := n.fault
	n.unsure, n.checkAt = err, g.Clock.Now().Add(RecheckEvery)
	n.away = runID == "" && !goredis.Answered(err)
	if err == nil {
		n.fault, n.runID = fault, runID
	}
	if err == nil && fault == nil {
		n.checkAt = clock.Never
	}
	n.mu.Unlock()
	g.mu.Unlock()
	switch {
	case err != nil:
	case fault != nil && was == nil:
		g.Callbacks.Post(&n.lines, func() {
			g.Conf.Logger.Error("lockkit: node is unfit and does not take part", n.attrs(), "err", fault)
		})
	case fault == nil && was != nil:
		g.Callbacks.Post(&n.lines, func() { g.Conf.Logger.Info("lockkit: node is fit and takes part again", n.attrs()) })
	}
	g.plan()
}

// twin says which other node that takes part is the same server. That one is examined, too: the two may have changed places.
// Called with the lock, so that of two nodes that are one server only one is found to be the second.
func (g *Group) twin(n *Node, runID string) (fault error) {
	for _, other := range g.Nodes {
		other.mu.Lock()
		if other != n && n.Cluster == nil && runID != "" && other.runID == runID && other.fault == nil {
			fault = fmt.Errorf("%w, it is also %v", ErrSameServer, other)
			other.checkAt = min(other.checkAt, g.Clock.Now())
		}
		other.mu.Unlock()
	}
	return fault
}

// Doubt has a node that refused something examined at once, unless it is known to be unfit.
func (g *Group) Doubt(n *Node) {
	n.mu.Lock()
	fit := n.fault == nil
	n.mu.Unlock()
	if fit {
		g.Tasks.Go(func() { g.check(n) })
	}
}

// examine asks a server who it is, and whether it runs what lockkit's scripts call. A fault lasts until somebody mends it;
// with an error, not all is known.
func (g *Group) examine(n *Node) (runID string, fault, err error) {
	ctx := &nodeContext{Context: context.Background(), deadline: time.Now().Add(g.Conf.Timeout), of: g.deadlines} //nolint:forbidigo // bounded by the node timeout
	x := newExamination(ctx, n.Index, n.Client, &g.Conf, g.Keys)
	x.waits = true
	if err := x.lookAtInfo(); err != nil {
		return "", nil, err
	}
	if x.Outside(); x.Flaws == nil {
		reply, err := run(ctx, n.Client, x.probing())
		if err == nil {
			text, _ := reply.(string)
			err = x.denied(wire.ParseRights(text, g.Conf.Prefix))
		}
		if err != nil {
			return x.Info["run_id"], nil, err
		}
		x.LacksRights()
	}
	for _, f := range x.Flaws {
		if f.Severity == severe {
			fault = errors.Join(fault, fmt.Errorf("%s: %s", f.What, f.Mend))
		}
	}
	if fault == nil && g.Conf.Guarded { // where that fails, the node's replies tell later
		for _, text := range x.guards() {
			if longest := wire.LongestOf(text.record); longest > 0 && g.Learn(longest) {
				g.tellLongest(longest, n)
			}
		}
	}
	return x.Info["run_id"], fault, nil
}

// observeVote follows what a node answers: a node that was away at the start is examined at its first answer, and
// an operator is told when trouble with a node begins and ends.
func (g *Group) observeVote(n *Node, v quorum.Vote, r *Round) {
	r.track(n, &v)
	n.mu.Lock()
	back := n.away && goredis.Answered(v.Err)
	n.away = n.away && !back
	counts := v.Claim == "" && !aboutKey(v.Err) // Provision knows best whether a new node shall vote
	news := counts && n.voting.see(v.Verdict, proves(r.op, v.Verdict))
	now := n.voting.now
	if r.op == wire.OpRenew && (v.Verdict == wire.Healed || v.Verdict == wire.Passed) {
		n.voting.proven = false // it may be in quarantine
	}
	if doubtful := !n.voting.proven; doubtful != n.doubtful {
		n.doubtful = doubtful
		g.doubtful.Add(map[bool]int32{true: 1, false: -1}[doubtful])
	}
	n.mu.Unlock()

	// A request puts off the touch of nodes if it asks for votes, or as long as all nodes have shown that they vote. A process
	// that only renews would else not hear whether a node that was away votes again.
	shows := r.op == wire.OpAcquire || r.op == wire.OpTouch || g.doubtful.Load() == 0
	if goredis.Answered(v.Err) && r.asker != nil && r.op != wire.OpRelease && shows {
		r.Bucket.asked.Store(g.Clock.Now())
	}
	if back {
		g.Tasks.Go(func() { g.check(n) })
	}
	switch {
	case !news:
	case now == wire.Granted:
		g.Callbacks.Post(&n.lines, func() { g.Conf.Logger.Info("lockkit: node votes again", n.attrs()) })
	default:
		why := v.Why()
		g.Callbacks.Post(&n.lines, func() {
			g.Conf.Logger.Warn("lockkit: node does not vote", n.attrs(), "verdict", now.String(), "why", why)
		})
	}
}

// aboutKey reports whether a request failed because of what the node stores for its key: for all other keys the node votes.
func aboutKey(err error) bool {
	return err != nil && (goredis.Says(err, "WRONGTYPE") || strings.Contains(err.Error(), "LAYOUT the key"))
}
