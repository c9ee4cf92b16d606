package testutil

import (
	"maps"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Snapshot is the data of a node at one instant, like an RDB file, or like a
// replica that has received nothing since. It can be restored any number of
// times, on any node.
type Snapshot struct {
	keys []savedKey
}

type savedKey struct {
	name    string
	expires time.Time // by the clock of the node that saved it; zero = never
	restore func(db *miniredis.RedisDB)
}

// Snapshot saves the keys of database 0, with their expiries. It leaves out
// streams and the expiries of single hash fields.
func (n *Node) Snapshot() *Snapshot {
	n.exec.Lock()
	defer n.exec.Unlock()

	n.expireKeys()
	s := &Snapshot{}
	now := time.Now().Add(n.offset)
	db := n.redis.DB(0)
	for _, name := range db.Keys() {
		k := savedKey{name: name, restore: save(db, name)}
		if k.restore == nil {
			continue
		}
		if ttl := db.TTL(name); ttl > 0 {
			k.expires = now.Add(ttl)
		}
		s.keys = append(s.keys, k)
	}

	return s
}

// save reads a key and returns a function that writes it again, or nil if its
// type is not supported.
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

// RestartFrom simulates a crash and a restart with older data, as with a server
// that saves its data from time to time. It is [Node.RestartEmpty], except that
// the node then has the data of s, without the keys that have expired by the
// node's clock.
func (n *Node) RestartFrom(s *Snapshot) {
	n.restore(s, func() {
		n.breakConnsLocked()
		n.identity.restart(time.Now())
	}, "SCRIPT FLUSH")
}

// PromoteFrom simulates a failover to a replica that lagged: it is
// [Node.Promote], and writes made after s was taken are lost. To simulate a
// former primary that still serves clients, use a second node. Clients that do
// not know of the failover stay with this node, without PromoteFrom. The other
// clients use a node that was restored from the snapshot by [Node.RestartFrom].
func (n *Node) PromoteFrom(s *Snapshot) {
	n.restore(s, func() {
		n.identity.replica = false
		n.identity.replid = newID()
	})
}

// restore calls set as [Node.change] does, runs commands, and replaces the data with the data of s.
func (n *Node) restore(s *Snapshot, set func(), commands ...string) {
	n.exec.Lock()
	defer n.exec.Unlock()

	n.changeLocked(set, append(commands, "FLUSHALL")...)
	now := time.Now().Add(n.offset)
	db := n.redis.DB(0)
	for _, k := range s.keys {
		if k.expires.IsZero() {
			k.restore(db)
			continue
		}
		if ttl := k.expires.Sub(now); ttl > 0 {
			k.restore(db)
			db.SetTTL(k.name, ttl)
		}
	}
}
