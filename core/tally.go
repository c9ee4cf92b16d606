package core

import (
	"errors"

	"github.com/lockkit/lockkit/core/internal/goredis"

	"github.com/lockkit/lockkit/core/internal/wire"

	"github.com/lockkit/lockkit/core/internal/quorum"
)

// errAhead is what a granted token means that is more than a day ahead of the node's clock, which no counter comes to by
// itself. Taken for good, it would leave the key without tokens.
var errAhead = errors.New("its fencing counter of this key is more than a day ahead of its clock: delete what this node has of the key when nobody holds it")

// failed is the vote of a node that answers with an error, or not at all.
func failed(err error) quorum.Vote {
	if goredis.Says(err, "READONLY") {
		return quorum.Said(wire.Replica, err)
	}
	return quorum.Said(wire.Failed, err)
}
