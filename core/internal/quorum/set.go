package quorum

import "math/bits"

// A Set is a set of nodes, by their indexes.
type Set uint64

// MaxNodes is the number of nodes that fit into a Set.
const MaxNodes = 64

// All returns the set of the nodes 0 to n-1.
func All(n int) Set {
	return Set(1)<<n - 1
}

// Of returns how many of n nodes are a quorum.
func Of(n int) int {
	return n/2 + 1
}

// Has reports whether node i is in the set.
func (s Set) Has(i int) bool {
	return s>>i&1 == 1
}

// With returns the set with node i added.
func (s Set) With(i int) Set {
	return s | 1<<i
}

// Without returns the set with node i removed.
func (s Set) Without(i int) Set {
	return s &^ (1 << i)
}

// Len returns the number of nodes in the set.
func (s Set) Len() int {
	return bits.OnesCount64(uint64(s))
}
