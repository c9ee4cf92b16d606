package core

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
)

// Everything about one resource lives under one hash tag, because a script's keys must share a slot:
//
//	<prefix>{<bucket>}r:<key>      the resource
//	<prefix>{<bucket>}w:<key>      who waits for it
//	<prefix>{<bucket>}x:<attempt>  tombstone of an attempt
//	<prefix>{<bucket>}g            guard record of the node
//	<prefix>{<bucket>}p            nothing: what the start-up checks try their rights on
//
// and <prefix>{<bucket>}c:<process> is the channel on which a process is told that its turn has come.
//
// The tag stands before the user's key, so no key can change the slot, and each kind has its own letter,
// so no key can name another kind. A plain server has one bucket; a Redis Cluster has clusterBuckets, to
// spread the load, and a guard record in each.

const (
	maxKeyLen      = 512
	clusterBuckets = 64
)

var errKeyLen = fmt.Errorf("a key must have 1 to %d bytes", maxKeyLen)

func checkKey(key string) error {
	if len(key) < 1 || len(key) > maxKeyLen {
		return fmt.Errorf("lockkit: %w: %w, this one has %d", ErrInvalidKey, errKeyLen, len(key))
	}
	return nil
}

// Key makes a key of parts, so that different parts make different keys, whatever they contain: "5:order/2:42" of "order"
// and "42". What would be longer than a key may be is hashed, which no other key made of parts can be taken for. The
// adapters make their keys by it, and take keys that were made by it as they are, so that a route, a task, a job and a call
// of Do that work on the same thing exclude one another and share its fencing tokens.
func Key(parts ...string) string {
	var room [128]byte
	key := room[:0]
	for i, part := range parts {
		if i > 0 {
			key = append(key, '/')
		}
		key = strconv.AppendInt(key, int64(len(part)), 10)
		key = append(key, ':')
		key = append(key, part...)
	}
	if len(key) <= maxKeyLen {
		return string(key)
	}
	sum := sha256.Sum256(key)
	return "sha256:" + hex.EncodeToString(sum[:]) // the others begin with a digit
}

// keyHash is what stands for a key in log lines: the keys themselves may be secrets of clients.
func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// A keyspace makes Redis keys.
type keyspace struct {
	tags []string // "<prefix>{<bucket>}"
}

func newKeyspace(prefix string, buckets int) keyspace {
	k := keyspace{make([]string, buckets)}
	for b := range k.tags {
		k.tags[b] = prefix + "{" + strconv.Itoa(b) + "}"
	}
	return k
}

func (k keyspace) bucket(key string) int {
	if len(k.tags) == 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(len(k.tags)))
}

func (k keyspace) resource(key string) string { return k.tags[k.bucket(key)] + "r:" + key }
func (k keyspace) guard(bucket int) string    { return k.tags[bucket] + "g" }
func (k keyspace) channel(bucket int, process string) string {
	return k.tags[bucket] + "c:" + process
}
func (k keyspace) probe(bucket int) string { return k.tags[bucket] + "p" }

// tombstoneOf is the tombstone of an attempt.
func (k keyspace) tombstoneOf(key, id string) string { return k.tags[k.bucket(key)] + "x:" + id }

// tombstone names a new attempt, the n-th of this process, and its tombstone. An attempt's id is random
// across processes and never the same twice within one: reusing it would let a late request of an old
// attempt act for a new one.
func (k keyspace) tombstone(key string, n uint64) (tombstone, id string) {
	var random [16]byte
	rand.Read(random[:])
	tag := k.tags[k.bucket(key)]
	var room [128]byte // enough, since a prefix has at most 64 bytes
	buf := append(append(room[:0], tag...), "x:"...)
	start := len(buf)
	buf = base64.RawURLEncoding.AppendEncode(buf, random[:]) // short: servers hash names by the byte
	tombstone = string(strconv.AppendUint(buf, n, 36))
	return tombstone, tombstone[start:]
}
