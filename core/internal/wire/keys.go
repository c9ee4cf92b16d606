package wire

import (
	"crypto/rand"
	"encoding/base64"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// The Redis keys of one key of the user have the same hash tag, because the keys of a script must share a slot:
//
//	<prefix>{<bucket>}r:<key>      the resource: lease, fencing counter, completion record
//	<prefix>{<bucket>}w:<key>      the waiters for the resource
//	<prefix>{<bucket>}x:<attempt>  tombstone of an attempt
//	<prefix>{<bucket>}g            guard record of the node
//	<prefix>{<bucket>}m            since when the node knows the longest max TTL, if that has changed
//	<prefix>{<bucket>}p            used by the start-up checks to try their rights, and never stored for long
//
// <prefix>{<bucket>}c:<process> is the channel that notifies a process that its turn has come.
//
// The tag stands before the user's key, so no key can change the slot. Each kind has its own letter, so no key can
// name another kind. A plain server has one bucket. A Redis Cluster has Buckets buckets, to spread the load, and a
// guard record in each.

const (
	MaxKey                    = 512         // bytes of a user's key
	MaxNote, MaxName, MaxHint = 128, 60, 64 // bytes of the texts of a Holder; together they fit into 255 bytes
	Buckets                   = 64          // buckets of a Redis Cluster
)

// A Keyspace makes Redis keys, and the requests that name them.
type Keyspace struct {
	tags   []string // by bucket: "<prefix>{<bucket>}"
	guards []any    // by bucket: the key of the guard record, boxed; nil if there is no guard
}

// NewKeyspace returns the Keyspace under a prefix, which must not contain braces. If guarded is set, requests name
// the guard record of their bucket.
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

// Buckets returns the number of buckets.
func (k *Keyspace) Buckets() int {
	return len(k.tags)
}

// Bucket returns the bucket of a user's key.
func (k *Keyspace) Bucket(key string) int {
	if len(k.tags) == 1 {
		return 0
	}

	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(len(k.tags)))
}

// Resource returns the Redis key of the resource of a user's key.
func (k *Keyspace) Resource(key string) string {
	return k.tags[k.Bucket(key)] + "r:" + key
}

// Waiters returns the Redis key of the queue of a user's key.
func (k *Keyspace) Waiters(key string) string {
	return k.tags[k.Bucket(key)] + "w:" + key
}

// Guard returns the Redis key of the guard record of a bucket.
func (k *Keyspace) Guard(bucket int) string {
	return k.tags[bucket] + "g"
}

// GuardQuery returns the command that reads a guard record.
func (k *Keyspace) GuardQuery(bucket int) []any {
	return []any{"get", k.Guard(bucket)}
}

// GuardsQuery returns the command that reads a guard record and the note beside it, see [LongestSince].
func (k *Keyspace) GuardsQuery(bucket int) []any {
	return []any{"mget", k.Guard(bucket), k.tags[bucket] + "m"}
}

func (k *Keyspace) probeKey(bucket int) string {
	return k.tags[bucket] + "p"
}

// Channel returns the channel of a bucket that notifies a process that its turn has come.
func (k *Keyspace) Channel(bucket int, process string) Channel {
	sharded := len(k.tags) > 1
	how, name := "P ", k.tags[bucket]+"c:"+process
	if sharded {
		how = "S "
	}
	return Channel{Name: name, Sharded: sharded, how: how + name}
}

// A Channel is a channel of Redis's publish and subscribe. A sharded channel is on the shard of its bucket's keys.
type Channel struct {
	Name    string
	Sharded bool
	how     string // as requests contain it: how to publish, a space, and the name; "" if there is no channel
}

// A Lock names an attempt, and the Redis keys of its requests.
type Lock struct {
	Key string

	resource, tombstone, guard any    // Redis keys, boxed once; guard is nil if there is no guard
	id                         string // the name of the attempt
}

// Lock returns the Lock of a new attempt, the n-th of this process. resource is the Redis key of the user's key. The
// id of an attempt is random between processes and never repeats within one: with the same id, a late request of an
// old attempt could act for a new one.
func (k *Keyspace) Lock(key, resource string, n uint64) Lock {
	var random [16]byte
	rand.Read(random[:])

	bucket := k.Bucket(key)

	var room [128]byte // large enough: a prefix has at most 64 bytes
	buf := append(room[:0], k.tags[bucket]...)
	buf = append(buf, "x:"...)
	start := len(buf)
	buf = base64.RawURLEncoding.AppendEncode(buf, random[:]) // short, because servers hash every byte of a key
	tombstone := string(strconv.AppendUint(buf, n, 36))

	return Lock{
		Key:       key,
		resource:  resource,
		tombstone: tombstone,
		guard:     k.guards[bucket],
		id:        tombstone[start:],
	}
}

// LockOf returns the Lock of an attempt of another process.
func (k *Keyspace) LockOf(key, attempt string) Lock {
	bucket := k.Bucket(key)
	return Lock{
		Key:       key,
		resource:  k.Resource(key),
		tombstone: k.tags[bucket] + "x:" + attempt,
		guard:     k.guards[bucket],
		id:        attempt,
	}
}

// Resource returns the Redis key of the user's key.
func (l *Lock) Resource() string {
	return l.resource.(string)
}

// keyKinds maps the letters behind the tag of a Redis key to its kind. A guard record, and the note beside it, have
// no expiry on purpose.
var keyKinds = map[string]string{
	"r:": "lock",
	"w:": "waiters",
	"x:": "tombstone",
	"g":  "guard",
	"m":  "guard",
	"p":  "probe",
}

// Kind returns the kind of a Redis key under the prefix: "lock", "waiters", "tombstone", "guard", "probe", or
// "foreign" if no Locker with this prefix on these nodes reads it. For the first two kinds it also returns the user's
// key.
func (k *Keyspace) Kind(name string) (kind, key string) {
	at := strings.IndexByte(name, '}') + 1
	letter := name[at:min(at+2, len(name))]
	kind = keyKinds[letter]
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

// Everything returns the glob that all Redis keys under the prefix match.
func (k *Keyspace) Everything() string {
	return globEscaper.Replace(strings.TrimSuffix(k.tags[0], "{0}")) + "*"
}

// Resources returns the globs for the resources of all user's keys that match glob.
func (k *Keyspace) Resources(glob string) []string {
	prefix := strings.TrimSuffix(k.Everything(), "*")
	if len(k.tags) == 1 {
		return []string{prefix + "{0}r:" + glob}
	}

	// Not {*}, which would also match a key that contains "}r:".
	return []string{prefix + "{[0-9]}r:" + glob, prefix + "{[0-9][0-9]}r:" + glob}
}

var globEscaper = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)
