package core

import (
	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// nodeState is what an attempt knows of one node.
type nodeState struct {
	expiry wire.NodeTime // logical expiry last confirmed; 0 = never
	clock  wire.NodeTime // the node's clock with it
	sent   clock.Instant // when the request was sent that it answered
	// memory names what the node remembered when it last vouched for the attempt: when the attempt asked, was
	// granted, or had a renewal confirmed that it could still trust. What the node forgets later may be the grant
	// of a later holder, so it accepts a completion only in that memory.
	memory     string
	unanswered int32 // requests sent that the node has not answered, and may never: they may still arrive
	ends       int32 // releases among them
	owed       owed
}

// An owed is what a node is still to hear of the end of an attempt, beside the releases under way.
//
//	              a release is confirmed   refused, or not answered   a late grant is heard of
//	owedNothing   owedNoMore               owedAgain                  a release comes after it
//	owedLater     owedNoMore               stays                      is told at once
//	owedAgain     owedNoMore               stays                      stays
//	owedLast      owedNoMore               owedInVain                 stays
//	owedInVain    owedNoMore               owedAgain                  owedAgain, at once
//	owedNoMore    stays                    stays                      stays
type owed uint8

const (
	owedNothing owed = iota
	owedLater        // it is told that the attempt is over, unless it answers by then that it does not have it
	owedAgain        // it is told once more: it has not confirmed it
	owedLast         // that is under way
	owedInVain       // it is told no more
	owedNoMore       // it has confirmed it
)

// granted notes that the node granted the attempt. Heard of after a renewal, it says nothing new.
func (s *nodeState) granted(got reply) {
	if s.expiry == 0 {
		s.memory = got.Memory
	}
	s.confirm(got)
}

// confirm notes that the lease is on the node until the expiry it named.
func (s *nodeState) confirm(got reply) {
	if got.Expiry >= s.expiry {
		s.expiry, s.clock, s.sent = got.Expiry, got.Clock, got.sent
	}
}
