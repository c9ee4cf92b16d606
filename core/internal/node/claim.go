package node

import (
	"context"
	"crypto/rand"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Claim asks all nodes what they remember of a bucket: those that have never granted anything keep the claim until they do, or
// forget it. Given what all of them said, it declares those to be new that still have the claim. It reports false where ctx ended
// first.
func (g *Group) Claim(ctx context.Context, bucket int, found []quorum.Vote) ([]quorum.Vote, bool) {
	claim := rand.Text()
	var r Round
	r.Init(g, wire.OpProvision, bucket, g.Conf.Timeout, nil, nil)
	r.Must, r.Each = true, func(i int) wire.Request {
		was := wire.NoMemory
		if found != nil {
			was = found[i].Claim
		}
		return g.Keys.Provision(bucket, claim, was)
	}
	r.Send(ctx, quorum.All(len(g.Nodes)))
	ok := r.Wait(ctx)
	return r.Votes, ok
}

// beginQuarantines makes nodes notice that they have lost their memory before anybody asks for a key. Those that are new stay so
// for Provision.
func (h *health) beginQuarantines() {
	said, ok := h.g.Claim(context.Background(), 0, nil) //nolint:forbidigo // nobody waits for it; bounded by the node timeout
	var lost quorum.Set
	for i := range said {
		if said[i].Verdict == wire.Quarantined && said[i].Claim == "" {
			lost = lost.With(i)
		}
	}
	if ok && lost != 0 {
		h.Touch(lost, 0)
	}
}
