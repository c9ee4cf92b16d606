package node

import (
	"strings"
	"sync/atomic"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Bucket is the part of a Group under one hash tag, with a guard record and a lane of its own for each node. A
// plain server has one bucket; a Redis Cluster has many, which spread the load over its shards. [Group.Bucket]
// chooses a key's bucket. Code that has a Bucket need not know how many there are.
type Bucket struct {
	*Group
	Channel wire.Channel // nodes publish here when a waiting call of this process may acquire its key

	index           int
	tagName         string // a name under the hash tag, by which a Cluster client finds the shard
	lanes           []*lane
	memories        []atomic.Pointer[string] // each node's memory, as last reported; nil until it is
	lastVoteRequest clock.AtomicInstant      // when nodes were last sent a request that starts a quarantine
}

func newBucket(g *Group, i int, process string) *Bucket {
	b := &Bucket{Group: g, Channel: g.Keys.Channel(i, process), index: i, tagName: g.Keys.Guard(i)}
	b.memories = make([]atomic.Pointer[string], len(g.Nodes))
	for _, n := range g.Nodes {
		b.lanes = append(b.lanes, newLane(b, n))
	}
	return b
}

// Bucket returns the bucket of a user's key.
func (g *Group) Bucket(key string) *Bucket { return g.Buckets[g.Keys.Bucket(key)] }

// setMemory records the memory that a node reported.
func (b *Bucket) setMemory(node int, memory string) {
	if memory == "" || memory == b.Memory(node) {
		return
	}
	reported := strings.Clone(memory) // does not keep the whole reply alive
	b.memories[node].Store(&reported)
}

// Memory returns the memory that a node last reported.
func (b *Bucket) Memory(node int) string {
	if m := b.memories[node].Load(); m != nil {
		return *m
	}
	return wire.NoMemory
}

// NoAnswerError returns the error of a request that a node has not answered in time.
func (b *Bucket) NoAnswerError(node int) error { return b.Nodes[node].noAnswerError(b.tagName) }
