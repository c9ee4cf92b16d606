// Package quorum counts what nodes vote, and judges what that comes to. It does no I/O and knows no clock: who has the votes
// of a round asks [Tally] whether more of them could change the outcome, and what the outcome is.
package quorum

import "math/bits"

// A Set is a set of nodes, by their indexes.
type Set uint64

// MaxNodes fits a Set; nobody votes with more.
const MaxNodes = 64

// All are n nodes.
func All(n int) Set { return Set(1)<<n - 1 }

// Of is how many of n nodes are a quorum.
func Of(n int) int { return n/2 + 1 }

// Has reports whether a node is in the set.
func (s Set) Has(i int) bool { return s>>i&1 == 1 }

// With is the set with a node.
func (s Set) With(i int) Set { return s | 1<<i }

// Without is the set without a node.
func (s Set) Without(i int) Set { return s &^ (1 << i) }

// Len is how many nodes are in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }
