package node

import (
	"context"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An operator lowers the longest lease in use that nodes know of, see wire/lua/lower.lua. These are the requests about one
// guard record; lockctl has their order. Each returns false where ctx ended before all nodes had answered.

// Mark asks all nodes to be marked. What nodes say of a longer lease is learnt.
func (b *Bucket) Mark(ctx context.Context) ([]quorum.Vote, bool) {
	return b.lower(ctx, false, func(int) wire.Request { return b.Keys.Mark(b.index, wire.MillisOf(b.Conf.MaxTTL)) })
}

// CheckMarks asks all nodes whether they are marked still, given what each said to Mark.
func (b *Bucket) CheckMarks(ctx context.Context, marked []quorum.Vote) ([]quorum.Vote, bool) {
	return b.lower(ctx, false, func(i int) wire.Request { return b.Keys.CheckMark(b.index, marked[i].Claim) })
}

// Lower lowers the value where a node is marked still, given what each said to Mark.
func (b *Bucket) Lower(ctx context.Context, marked []quorum.Vote) ([]quorum.Vote, bool) {
	return b.lower(ctx, false, func(i int) wire.Request {
		return b.Keys.Lower(b.index, wire.MillisOf(b.Conf.MaxTTL), marked[i].Claim)
	})
}

// Unmark takes the marks away, from nodes in trouble too.
func (b *Bucket) Unmark(ctx context.Context) ([]quorum.Vote, bool) {
	return b.lower(ctx, true, func(int) wire.Request { return b.Keys.Unmark(b.index) })
}

func (b *Bucket) lower(ctx context.Context, must bool, each wire.Each) ([]quorum.Vote, bool) {
	var r Round
	r.Init(b, wire.OpLower, b.Conf.Timeout, nil, nil)
	r.Must = must
	r.Each = each
	r.Send(ctx, quorum.All(len(b.Nodes)))
	ok := r.Wait(ctx)
	return r.Votes, ok
}
