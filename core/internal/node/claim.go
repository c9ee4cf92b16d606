package node

import (
	"context"
	"crypto/rand"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Claim asks all nodes what they remember: those that have never granted anything keep the claim until they do, or
// forget it. Given what all of them said, it declares those to be new that still have the claim. It reports false where ctx ended
// first.
func (b *Bucket) Claim(ctx context.Context, found []quorum.Vote) ([]quorum.Vote, bool) {
	claim := rand.Text()
	var r Round
	r.Init(b, wire.OpProvision, b.Conf.Timeout, nil, nil)
	r.Must = true
	r.Each = func(i int) wire.Request {
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
