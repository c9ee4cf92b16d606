package testutil

import (
	"maps"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Snapshot is what a node held at one instant, like an RDB file, or like a
// replica that has heard nothing since. It can be restored any number of
// times, on any node.
type Snapshot struct {
	keys []savedKey
}

type savedKey struct {
	name    string
	expires time.Time // by the clock of the node that saved it; zero = never
	put     func(db *miniredis.RedisDB)
}

// Snapshot saves the keys of database 0, with their expiries. Streams and the
// expiries of single hash fields are left out.
func (n *Node) Snapshot() *Snapshot {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.tick()
	s := &Snapshot{}
	now := time.Now().Add(n.offset)
	db := n.redis.DB(0)
	for _, name := range db.Keys() {
		k := savedKey{name: name, put: save(db, name)}
		if k.put == nil {
			continue
		}
		if ttl := db.TTL(name); ttl > 0 {
			k.expires = now.Add(ttl)
		}
		s.keys = append(s.keys, k)
	}
	return s
}

// save reads a key and returns what writes it again.
func save(db *miniredis.RedisDB, name string) func(*miniredis.RedisDB) {
	switch db.Type(name) {
	case "string":
		value, _ := db.Get(name)
		return func(db *miniredis.RedisDB) { _ = db.Set(name, value) }
	case "hash":
		fields, _ := db.HKeys(name)
		var pairs []string
		for _, f := range fields {
			pairs = append(pairs, f, db.HGet(name, f))
		}
		return func(db *miniredis.RedisDB) { db.HSet(name, pairs...) }
	case "list":
		live, _ := db.List(name)
		values := slices.Clone(live)
		return func(db *miniredis.RedisDB) { _, _ = db.Push(name, values...) }
	case "set":
		members, _ := db.Members(name)
		return func(db *miniredis.RedisDB) { _, _ = db.SetAdd(name, members...) }
	case "zset":
		live, _ := db.SortedSet(name)
		scores := maps.Clone(live)
		return func(db *miniredis.RedisDB) {
			for member, score := range scores {
				_, _ = db.ZAdd(name, score, member)
			}
		}
	}
	return nil
}

// RestartFrom is a crash and a restart with an older state, as with a server
// that saves its data now and then: like [Node.RestartEmpty], but with the data
// of s. What has expired meanwhile by the node's clock is not loaded.
func (n *Node) RestartFrom(s *Snapshot) {
	n.restore(s, func() {
		n.breakConnsLocked()
		n.id.restart(time.Now())
	}, "SCRIPT FLUSH")
}

// PromoteFrom is a failover to a replica that lagged: what was written after s
// was taken is lost, and the rest is as with [Node.Promote]. A former primary
// that goes on serving is a node of its own: let the clients that have not
// heard of the failover stay with this node, and give the others one that was
// restored from the snapshot, by [Node.RestartFrom].
func (n *Node) PromoteFrom(s *Snapshot) {
	n.restore(s, func() {
		n.id.replica = false
		n.id.replid = newID()
	})
}

func (n *Node) restore(s *Snapshot, change func(), commands ...string) {
	n.exec.Lock()
	defer n.exec.Unlock()
	n.throwLocked(change, append(commands, "FLUSHALL")...)
	now := time.Now().Add(n.offset)
	db := n.redis.DB(0)
	for _, k := range s.keys {
		if k.expires.IsZero() {
			k.put(db)
			continue
		}
		if ttl := k.expires.Sub(now); ttl > 0 {
			k.put(db)
			db.SetTTL(k.name, ttl)
		}
	}
}
