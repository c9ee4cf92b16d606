package wire

import (
	"crypto/rand"
	"encoding/base64"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// How Redis keys are named, and what a name stands for. Everything about one key of the user's lives under one hash tag,
// because a script's keys must share a slot:
//
//	<prefix>{<bucket>}r:<key>      the resource: lease, fencing counter, completion record
//	<prefix>{<bucket>}w:<key>      who waits for it
//	<prefix>{<bucket>}x:<attempt>  tombstone of an attempt
//	<prefix>{<bucket>}g            guard record of the node
//	<prefix>{<bucket>}m            since when the node knows of the longest max TTL, where it has changed
//	<prefix>{<bucket>}p            nothing: what the start-up checks try their rights on
//
// and <prefix>{<bucket>}c:<process> is the channel on which a process is told that its turn has come.
//
// The tag stands before the user's key, so no key can change the slot, and each kind has its own letter, so no key can name
// another kind. A plain server has one bucket; a Redis Cluster has Buckets, to spread the load, and a guard record in each.

const (
	MaxKey                    = 512         // bytes of a user's key
	MaxNote, MaxName, MaxHint = 128, 60, 64 // of a Holder's: together they fit into the 255 bytes that there are
	Buckets                   = 64          // of a Redis Cluster
)

// A Keyspace makes Redis keys, and the requests that name them.
type Keyspace struct {
	tags   []string // "<prefix>{<bucket>}"
	guards []any    // that requests name, by bucket, boxed; nil where they name none
}

// NewKeyspace is the one under a prefix, which has no braces. guarded: requests name the guard record of their bucket.
func NewKeyspace(prefix string, buckets int, guarded bool) *Keyspace {
	k := &Keyspace{tags: make([]string, buckets), guards: make([]any, buckets)}
	for b := range buckets {
		k.tags[b] = prefix + "{" + strconv.Itoa(b) + "}"
		if guarded {
			k.guards[b] = k.Guard(b)
		}
	}
	return k
}

// Buckets is how many there are.
func (k *Keyspace) Buckets() int { return len(k.tags) }

// Bucket is that of a key of the user's.
func (k *Keyspace) Bucket(key string) int {
	if len(k.tags) == 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(len(k.tags)))
}

// Resource names the hash of a key of the user's, as above.
func (k *Keyspace) Resource(key string) string { return k.tags[k.Bucket(key)] + "r:" + key }

// Waiters names the queue of those who wait for a key.
func (k *Keyspace) Waiters(key string) string { return k.tags[k.Bucket(key)] + "w:" + key }

// Guard names the guard record of a bucket.
func (k *Keyspace) Guard(bucket int) string { return k.tags[bucket] + "g" }

// GuardQuery is the command that reads a guard record.
func (k *Keyspace) GuardQuery(bucket int) []any { return []any{"get", k.Guard(bucket)} }

// GuardsQuery is the command that reads a guard record and the note beside it, since when it names the longest lease in use.
func (k *Keyspace) GuardsQuery(bucket int) []any {
	return []any{"mget", k.Guard(bucket), k.tags[bucket] + "m"}
}

func (k *Keyspace) probe(bucket int) string { return k.tags[bucket] + "p" }

// Channel is where a process is told that its turn has come, as requests name it: how to publish, and where.
func (k *Keyspace) Channel(bucket int, process string) Channel {
	sharded := len(k.tags) > 1
	how, name := "P ", k.tags[bucket]+"c:"+process
	if sharded {
		how = "S "
	}
	return Channel{Name: name, Sharded: sharded, how: how + name}
}

// A Channel is one of Redis' publish and subscribe; sharded ones are where the keys of their bucket are.
type Channel struct {
	Name    string
	Sharded bool
	how     string // and where, as requests say it; "" = none
}

// A Lock is an attempt, and what it asks for.
type Lock struct {
	Key string

	resource, tombstone, guard any // boxed once; guard is nil without one
	id                         string
}

// Lock names a new attempt, the n-th of this process. resource is that of the key. An attempt's id is random across
// processes and never the same twice within one: reusing it would let a late request of an old attempt act for a new one.
func (k *Keyspace) Lock(key, resource string, n uint64) Lock {
	var random [16]byte
	rand.Read(random[:])
	bucket := k.Bucket(key)
	var room [128]byte // enough, since a prefix has at most 64 bytes
	buf := append(room[:0], k.tags[bucket]...)
	buf = append(buf, "x:"...)
	start := len(buf)
	buf = base64.RawURLEncoding.AppendEncode(buf, random[:]) // short: servers hash names by the byte
	tombstone := string(strconv.AppendUint(buf, n, 36))
	return Lock{Key: key, resource: resource, tombstone: tombstone, guard: k.guards[bucket], id: tombstone[start:]}
}

// LockOf names somebody else's attempt.
func (k *Keyspace) LockOf(key, attempt string) Lock {
	bucket := k.Bucket(key)
	return Lock{Key: key, resource: k.Resource(key), tombstone: k.tags[bucket] + "x:" + attempt, guard: k.guards[bucket], id: attempt}
}

// Resource is the key's name in Redis.
func (l *Lock) Resource() string { return l.resource.(string) }

// kinds are what names stand for, by what follows their tag. A guard record, and the note beside it, have no expiry on purpose.
var kinds = map[string]string{"r:": "lock", "w:": "waiters", "x:": "tombstone", "g": "guard", "m": "guard", "p": "probe"}

// Kind says what a name under the prefix stands for: "lock", "waiters", "tombstone", "guard", "probe", or "foreign", which is
// nothing that a Locker with this prefix on these nodes reads. Of the first two it also returns the user's key.
func (k *Keyspace) Kind(name string) (kind, key string) {
	at := strings.IndexByte(name, '}') + 1
	letter := name[at:min(at+2, len(name))]
	kind = kinds[letter]
	bucket := slices.Index(k.tags, name[:at])
	if bucket < 0 || kind == "" {
		return "foreign", ""
	}
	ofKey := letter == "r:" || letter == "w:"
	if !ofKey {
		return kind, ""
	}
	key = name[at+2:]
	possible := 0 < len(key) && len(key) <= MaxKey && k.Bucket(key) == bucket
	if !possible {
		return "foreign", ""
	}
	return kind, key
}

// Everything is the glob of Redis that all names under the prefix match.
func (k *Keyspace) Everything() string {
	return globEscaper.Replace(strings.TrimSuffix(k.tags[0], "{0}")) + "*"
}

// Resources are the globs of Redis that the resources of those of the user's keys match that match a glob.
func (k *Keyspace) Resources(glob string) []string {
	prefix := strings.TrimSuffix(k.Everything(), "*")
	if len(k.tags) == 1 {
		return []string{prefix + "{0}r:" + glob}
	}
	// Not {*}, which would also match a key that contains "}r:".
	return []string{prefix + "{[0-9]}r:" + glob, prefix + "{[0-9][0-9]}r:" + glob}
}

var globEscaper = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
