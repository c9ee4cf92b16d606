package node

import (
	"context"
	"crypto/rand"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Claim asks all nodes about their memory. A node that has never granted anything keeps the claim until it grants
// something or loses its memory. If found has the votes of an earlier Claim, the nodes that still have that claim
// are declared new. Claim returns false if ctx ended before all nodes had answered.
func (b *Bucket) Claim(ctx context.Context, found []quorum.Vote) ([]quorum.Vote, bool) {
	claim := rand.Text()
	var r Round
	r.Init(b, wire.OpProvision, b.Conf.Timeout, nil, nil)

	r.AskTroubled = true
	r.Each = func(i int) wire.Request {
		previous := wire.NoMemory
		if found != nil {
			previous = found[i].Claim
		}
		return b.Keys.Provision(b.index, claim, previous)
	}

	r.Send(ctx, quorum.All(len(b.Nodes)))
	ok := r.Wait(ctx)
	return r.Votes, ok
}

// beginQuarantines makes nodes that have lost their memory begin their quarantine before the first request for a
// key. New nodes are left alone, so that Provision can still declare them new.
func (b *Bucket) beginQuarantines() {
	votes, ok := b.Claim(context.Background(), nil) //nolint:forbidigo // bounded by the node timeout

	t := quorum.Tally{Votes: votes}
	lost := t.Filter(func(v *quorum.Vote) bool { return v.Verdict == wire.Quarantined && v.Claim == "" })
	if ok && lost != 0 {
		b.Touch(lost)
	}
}
