package core

import "math/bits"

// A nodeSet is a set of node indexes.
type nodeSet uint64

// maxNodes fits a nodeSet; nobody votes with more.
const maxNodes = 64

func allNodes(n int) nodeSet            { return nodeSet(1)<<n - 1 }
func (s nodeSet) has(i int) bool        { return s>>i&1 == 1 }
func (s nodeSet) with(i int) nodeSet    { return s | 1<<i }
func (s nodeSet) without(i int) nodeSet { return s &^ (1 << i) }
func (s nodeSet) len() int              { return bits.OnesCount64(uint64(s)) }
func quorum(n int) int                  { return n/2 + 1 }
