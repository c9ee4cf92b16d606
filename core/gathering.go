package core

import (
	"cmp"
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/internal/join"
)

// A gathering is one call of AcquireAll in progress: it acquires several keys in sorted order. At any time it holds a
// prefix of them, and waits for the next key only. So of several gatherings that wait, the one that waits for the last
// key holds everything that it needs from the others: they never wait in a circle.
//
// Only the goroutine of the call uses it.
type gathering struct {
	e         *engine
	p         *policy         // of the call
	member    *policy         // of each lease
	parent    context.Context // the caller's
	keys      []string        // sorted, without duplicates
	try       bool            // wait for no holder
	waitUntil time.Time       // set by MaxWait; zero = the context decides
	metadata  string          // the note, name and hint that each lease carries

	out Outcome // for the observer
}

// newGathering returns a gathering that has not begun.
func newGathering(ctx context.Context, e *engine, keys []string, try bool, p *policy) *gathering {
	member := *p
	member.member = true
	member.maxHold = 0 // begins when the set is complete

	g := &gathering{e: e, p: p, member: &member, parent: ctx, keys: keys, try: try}
	if p.detached {
		g.parent = context.WithoutCancel(ctx)
	}
	return g
}

// run acquires all keys, or none.
func (g *gathering) run(ctx context.Context) (*Leases, error) {
	// From here on, Close waits for this call.
	admitted := ctx.Err() == nil && g.e.gate.Enter()
	if !admitted {
		return nil, new(refusal).stopError(ctx, g.e.Group, OpAcquire, g.keys[0])
	}
	defer g.e.gate.Leave()

	if g.p.maxWait > 0 && !g.try {
		g.waitUntil = time.Now().Add(g.p.maxWait)
	}
	for {
		set, lost, err := g.gather(ctx)
		switch {
		case !lost || ctx.Err() != nil:
			return set, err
		case g.e.IsClosing():
			return nil, new(refusal).stopError(ctx, g.e.Group, OpAcquire, g.keys[0])
		}
	}
}

// gather acquires all keys once. If it fails, it holds none of them. lost reports that it failed because a lease was
// lost before the set was complete.
func (g *gathering) gather(ctx context.Context) (complete *Leases, lost bool, err error) {
	set := newLeases(g.p, g.parent)
	defer func() {
		if complete == nil { // also if the caller's context panics
			g.p.cancelContext(set.cancel, ErrReleased)
			releaseTogether(ctx, set.leases, 0)
		}
	}()

	err = g.acquireRest(ctx, set)
	if err != nil {
		return nil, set.lostSome(), err
	}

	// The clocks of all leases are read last, after every wait.
	set.complete()
	if set.ctx.Err() != nil {
		return nil, set.lostSome(), new(refusal).stopError(set.ctx, g.e.Group, OpAcquire, g.keys[0])
	}
	g.out.Margin = set.leastValidity()
	return set, false, nil
}

// acquireRest acquires all keys that the set lacks, or returns an error. When it returns, its contexts have ended: that, too,
// calls methods of the caller's context, which may panic.
func (g *gathering) acquireRest(ctx context.Context, set *Leases) error {
	// A lease that is lost ends the wait for the next key.
	ctx, stop := join.Contexts(ctx, set.shared)
	defer stop()
	waitCtx := ctx
	if !g.waitUntil.IsZero() {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithDeadline(ctx, g.waitUntil)
		defer cancel()
	}

	for len(set.leases) < len(g.keys) {
		err := g.acquireSome(ctx, waitCtx, set)
		if err != nil {
			return err
		}
	}
	return nil
}

// acquireSome acquires at least the first of the keys that the set lacks, or returns an error.
func (g *gathering) acquireSome(ctx, waitCtx context.Context, set *Leases) error {
	first := g.keys[len(set.leases)]
	asksAll := g.try || !g.e.contended.has(g.e.Keys.Resource(first), g.e.Clock.Now())
	if asksAll {
		had := len(set.leases)
		refused := g.askAll(ctx, waitCtx, set)
		switch {
		case refused != nil && g.mustStop(waitCtx, refused):
			return refused.stopError(ctx)
		case refused == nil && len(set.leases) > had:
			return nil
		}
	}

	a := g.newAcquisition(set, g.keys[len(set.leases)], g.try)
	lease, err := a.runWithin(ctx, waitCtx)
	g.record(a)
	if err != nil {
		return err
	}
	set.leases = append(set.leases, lease)
	if a.out.Contended {
		g.e.contended.add(a.resource, g.e.Clock.Now())
	}
	return nil
}

// mustStop reports whether the refusal of a key that was asked for without waiting ends the call. Otherwise the key is
// asked for again by itself.
func (g *gathering) mustStop(waitCtx context.Context, refused *acquisition) bool {
	isDone := refused.last.err == ErrDone //nolint:errorlint // refusalErrors has the sentinel itself
	switch {
	case waitCtx.Err() != nil || g.e.IsClosing() || isDone:
		return true
	case g.try:
		return !refused.last.isSplit() && !refused.last.retryNow
	default:
		return false
	}
}

// askAll asks for all keys that the set lacks, at once and without waiting. It adds the leases on the keys before the
// first that is refused, gives the others back, and returns the acquisition that was refused; nil if there was none.
//
// It asks only for the keys before the first whose turn another caller of this process has.
func (g *gathering) askAll(ctx, waitCtx context.Context, set *Leases) (refused *acquisition) {
	asked := g.beginAll(ctx, set)

	// It is deferred, because the caller's context is user code and may panic.
	defer func() { g.giveBack(ctx, waitCtx, asked) }()

	for len(asked) > 0 {
		a := asked[0]
		asked = asked[1:]
		a.prefetched.lease.ctx.parent = set.innermost()
		lease := a.finishTry(ctx, waitCtx)
		g.record(a)
		if lease == nil {
			return a
		}
		set.leases = append(set.leases, lease)
	}
	return nil
}

// beginAll sends the requests for all keys that the set lacks and whose turn in this process is free.
func (g *gathering) beginAll(ctx context.Context, set *Leases) (asked []*acquisition) {
	rounds := map[*node.Bucket][]*node.Round{}
	for _, key := range g.keys[len(set.leases):] {
		a := g.newAcquisition(set, key, true)
		entered := g.e.localQueue.TryEnter(a.resource)
		if !entered {
			break
		}
		a.prefetched = a.newAttempt()
		a.prefetchedRound = a.prefetched.newAcquireRound(false)
		a.prefetchedRound.Begin(ctx, quorum.All(len(g.e.Nodes)))
		asked = append(asked, a)

		bucket := a.prefetched.bucket
		rounds[bucket] = append(rounds[bucket], a.prefetchedRound)
	}
	dispatchAll(rounds)
	return asked
}

// giveBack ends acquisitions whose requests have been sent and whose keys are not wanted any more. It releases all keys
// at once.
func (g *gathering) giveBack(ctx, waitCtx context.Context, asked []*acquisition) {
	// The caller's context may panic. Then the nodes free the keys after the TTL, but nobody else would pass on the turns.
	unended := asked
	defer func() {
		for _, a := range unended {
			a.endWait(ctx, false)
		}
	}()

	// All of them were asked at the same time, and one timeout holds for all.
	waitCtx, cancel := context.WithTimeout(waitCtx, 2*g.member.nodeTimeout)
	defer cancel()

	releases := make([]*node.Round, len(asked))
	rounds := map[*node.Bucket][]*node.Round{}
	for i, a := range asked {
		a.prefetchedRound.Wait(waitCtx) // another shard of a Cluster may still have to answer; a late grant must not stay
		releases[i] = a.prefetched.beginAbandon(ctx, waitCtx, &a.prefetchedRound.Tally)
		bucket := a.prefetched.bucket
		rounds[bucket] = append(rounds[bucket], releases[i])
	}
	dispatchAll(rounds)

	for i, a := range asked {
		waitForReleases(waitCtx, releases[i], &a.prefetchedRound.Tally)
		unended = unended[1:]
		a.endWait(ctx, false)
	}
}

// dispatchAll sends the requests of rounds. Those about keys of one bucket leave together.
func dispatchAll(rounds map[*node.Bucket][]*node.Round) {
	for _, ofBucket := range rounds {
		node.Dispatch(ofBucket...)
	}
}

// newAcquisition returns the acquisition of one of the keys.
func (g *gathering) newAcquisition(set *Leases, key string, try bool) *acquisition {
	return &acquisition{call: call{
		e:            g.e,
		p:            g.member,
		key:          key,
		resource:     g.e.Keys.Resource(key),
		parent:       set.innermost(),
		shared:       set.shared,
		cancelShared: set.cancel,
		tryOnly:      try,
		metadata:     g.metadata,
	}}
}

// record adds the outcome of the acquisition of one key to that of the call.
func (g *gathering) record(a *acquisition) {
	g.out.Attempts += a.out.Attempts
	g.out.Contended = g.out.Contended || a.out.Contended
	g.out.HolderHint = cmp.Or(a.out.HolderHint, g.out.HolderHint)
	g.out.Nodes = a.out.Nodes
}

// finishTry makes the single attempt of a call whose request has been sent and that has the turn of its key.
func (a *acquisition) finishTry(ctx, waitCtx context.Context) (lease *Lease) {
	defer func() { a.endWait(ctx, lease != nil) }()
	a.out.Attempts++
	lease, refused := a.try(ctx, waitCtx)
	a.recordAttempt(lease, refused)
	return lease
}
