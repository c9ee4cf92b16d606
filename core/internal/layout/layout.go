// Package layout is how Redis keys are named, and what a name stands for. Everything about one key of the user's lives
// under one hash tag, because a script's keys must share a slot:
//
//	<prefix>{<bucket>}r:<key>      the resource: lease, fencing counter, completion record
//	<prefix>{<bucket>}w:<key>      who waits for it
//	<prefix>{<bucket>}x:<attempt>  tombstone of an attempt
//	<prefix>{<bucket>}g            guard record of the node
//	<prefix>{<bucket>}p            nothing: what the start-up checks try their rights on
//
// and <prefix>{<bucket>}c:<process> is the channel on which a process is told that its turn has come.
//
// The tag stands before the user's key, so no key can change the slot, and each kind has its own letter,
// so no key can name another kind. A plain server has one bucket; a Redis Cluster has Buckets, to
// spread the load, and a guard record in each.
package layout

import (
	"crypto/rand"
	"encoding/base64"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

const (
	MaxKey  = 512 // bytes of a user's key
	Buckets = 64  // of a Redis Cluster
)

// Keys makes Redis keys.
type Keys struct {
	tags []string // "<prefix>{<bucket>}"
}

// New is the layout under a prefix, which has no braces.
func New(prefix string, buckets int) Keys {
	k := Keys{make([]string, buckets)}
	for b := range k.tags {
		k.tags[b] = prefix + "{" + strconv.Itoa(b) + "}"
	}
	return k
}

func (k Keys) Buckets() int { return len(k.tags) }

func (k Keys) Bucket(key string) int {
	if len(k.tags) == 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(len(k.tags)))
}

func (k Keys) Resource(key string) string                { return k.tags[k.Bucket(key)] + "r:" + key }
func (k Keys) Waiters(key string) string                 { return k.tags[k.Bucket(key)] + "w:" + key }
func (k Keys) TombstoneOf(key, attempt string) string    { return k.tags[k.Bucket(key)] + "x:" + attempt }
func (k Keys) Guard(bucket int) string                   { return k.tags[bucket] + "g" }
func (k Keys) Probe(bucket int) string                   { return k.tags[bucket] + "p" }
func (k Keys) Channel(bucket int, process string) string { return k.tags[bucket] + "c:" + process }

// Tombstone names a new attempt, the n-th of this process, and its tombstone. An attempt's id is random
// across processes and never the same twice within one: reusing it would let a late request of an old
// attempt act for a new one.
func (k Keys) Tombstone(key string, n uint64) (tombstone, id string) {
	var random [16]byte
	rand.Read(random[:])
	tag := k.tags[k.Bucket(key)]
	var room [128]byte // enough, since a prefix has at most 64 bytes
	buf := append(append(room[:0], tag...), "x:"...)
	start := len(buf)
	buf = base64.RawURLEncoding.AppendEncode(buf, random[:]) // short: servers hash names by the byte
	tombstone = string(strconv.AppendUint(buf, n, 36))
	return tombstone, tombstone[start:]
}

// A Kind says what a key in Redis is for.
type Kind string

const (
	Resource  Kind = "lock"
	Waiters   Kind = "waiters"
	Tombstone Kind = "tombstone"
	Guard     Kind = "guard" // it has no expiry on purpose
	Probe     Kind = "probe"
	Foreign   Kind = "foreign" // nothing that a Locker with this prefix on these nodes reads
)

// Kind says what a name under the prefix stands for, and of which of the user's keys.
func (k Keys) Kind(name string) (kind Kind, key string) {
	at := strings.IndexByte(name, '}') + 1
	bucket := slices.Index(k.tags, name[:at])
	if bucket < 0 {
		return Foreign, ""
	}
	switch rest := name[at:]; {
	case rest == "g":
		return Guard, ""
	case rest == "p":
		return Probe, ""
	case strings.HasPrefix(rest, "x:"):
		return Tombstone, ""
	case len(rest) < 3 || len(rest) > 2+MaxKey || k.Bucket(rest[2:]) != bucket:
		return Foreign, ""
	case rest[:2] == "r:":
		return Resource, rest[2:]
	case rest[:2] == "w:":
		return Waiters, rest[2:]
	}
	return Foreign, ""
}

// Everything is the glob of Redis that all names under the prefix match.
func (k Keys) Everything() string {
	return globEscaper.Replace(strings.TrimSuffix(k.tags[0], "{0}")) + "*"
}

// Resources are the globs of Redis that the resources of those of the user's keys match that match a glob.
func (k Keys) Resources(glob string) []string {
	prefix := strings.TrimSuffix(k.Everything(), "*")
	if len(k.tags) == 1 {
		return []string{prefix + "{0}r:" + glob}
	}
	// Not {*}, which would also match a key that contains "}r:".
	return []string{prefix + "{[0-9]}r:" + glob, prefix + "{[0-9][0-9]}r:" + glob}
}

var globEscaper = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
