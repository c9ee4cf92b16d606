package core

import (
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A vote is what one node answered in one round.
type vote struct {
	wire.Reply
	err     error
	waited  time.Duration // for its turn, before it was sent
	latency time.Duration
	skew    time.Duration // node's wall clock minus ours at the answer
	slept   bool          // renewed: shows that our clock stood still meanwhile
}

// said is a vote of no more than a verdict, and why.
func said(v wire.Verdict, err error) vote { return vote{Reply: wire.Reply{Verdict: v}, err: err} }

// errAhead is what a granted token means that is more than a day ahead of the node's clock, which no counter comes to by
// itself. Taken for good, it would leave the key without tokens.
var errAhead = errors.New("its fencing counter of this key is more than a day ahead of its clock: delete what this node has of the key when nobody holds it")

// failed is the vote of a node that answers with an error, or not at all.
func failed(err error) vote {
	if goredis.Says(err, "READONLY") {
		return said(wire.Replica, err)
	}
	return said(wire.Failed, err)
}
