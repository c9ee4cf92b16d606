package node

import (
	"strings"
	"sync/atomic"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Bucket is what a Group holds under one hash tag, with a guard record and a way of its own to each node. A plain server has
// one; a Redis Cluster has many, to spread the load over its shards. [Group.Bucket] chooses it by the key. Whoever has it need
// not know how many there are.
type Bucket struct {
	*Group
	Channel wire.Channel // where nodes tell this process that the turn of one of its calls has come

	index    int
	tagged   string // a name under the hash tag, by which a Cluster client finds the shard
	lanes    []*lane
	memories []atomic.Pointer[string] // what nodes remember, as last heard; nil = not heard yet
	asked    clock.AtomicInstant      // when nodes were last asked something that begins a quarantine
}

func newBucket(g *Group, i int, process string) *Bucket {
	b := &Bucket{Group: g, Channel: g.Keys.Channel(i, process), index: i, tagged: g.Keys.Guard(i)}
	b.memories = make([]atomic.Pointer[string], len(g.Nodes))
	for _, n := range g.Nodes {
		b.lanes = append(b.lanes, newLane(b, n))
	}
	return b
}

// Bucket is that of a key of the user's.
func (g *Group) Bucket(key string) *Bucket { return g.Buckets[g.Keys.Bucket(key)] }

// heardMemory notes what a node remembers.
func (b *Bucket) heardMemory(node int, memory string) {
	if memory == "" || memory == b.Memory(node) {
		return
	}
	heard := strings.Clone(memory) // not all of the reply
	b.memories[node].Store(&heard)
}

// Memory is what a node was last heard to remember.
func (b *Bucket) Memory(node int) string {
	if m := b.memories[node].Load(); m != nil {
		return *m
	}
	return wire.NoMemory
}

// NoAnswer is the error of a request that a node has not answered in time.
func (b *Bucket) NoAnswer(node int) error { return b.Nodes[node].noAnswer(b.tagged) }
