package node

import (
	"context"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An operator can lower the longest max TTL that nodes know, see wire/lua/lower.lua. These are the requests about
// one guard record; lockctl sends them in order. Each returns false if ctx ended before all nodes had answered.

// Mark asks all nodes to mark their guard record. Nodes that know of a longer max TTL report it to this process.
func (b *Bucket) Mark(ctx context.Context) ([]quorum.Vote, bool) {
	return b.lower(ctx, false, func(int) wire.Request {
		return b.Keys.Mark(b.index, wire.MillisOf(b.Conf.MaxTTL))
	})
}

// CheckMarks asks all nodes whether they still have the marks that Mark returned.
func (b *Bucket) CheckMarks(ctx context.Context, marked []quorum.Vote) ([]quorum.Vote, bool) {
	return b.lower(ctx, false, func(i int) wire.Request {
		return b.Keys.CheckMark(b.index, marked[i].Claim)
	})
}

// Lower lowers the value on nodes that still have the marks that Mark returned.
func (b *Bucket) Lower(ctx context.Context, marked []quorum.Vote) ([]quorum.Vote, bool) {
	return b.lower(ctx, false, func(i int) wire.Request {
		return b.Keys.Lower(b.index, wire.MillisOf(b.Conf.MaxTTL), marked[i].Claim)
	})
}

// Unmark removes the marks, even from nodes in trouble.
func (b *Bucket) Unmark(ctx context.Context) ([]quorum.Vote, bool) {
	return b.lower(ctx, true, func(int) wire.Request {
		return b.Keys.Unmark(b.index)
	})
}

func (b *Bucket) lower(ctx context.Context, must bool, each wire.RequestOf) ([]quorum.Vote, bool) {
	var r Round
	r.Init(b, wire.OpLower, b.Conf.Timeout, nil, nil)
	r.AskTroubled = must
	r.Each = each
	r.Send(ctx, quorum.All(len(b.Nodes)))
	ok := r.Wait(ctx)
	return r.Votes, ok
}
